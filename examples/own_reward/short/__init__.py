"""A task with a reward of its own."""
