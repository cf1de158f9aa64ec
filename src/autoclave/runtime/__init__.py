"""Actions that an LLM proposes and a person can take back. A stranger to training; free of torch."""
