"""Actions that an LLM proposes and a person can undo. Independent of training, and free of torch."""
