"""How actions on rows are done and taken back: a module for each mode, and what they have in common."""
