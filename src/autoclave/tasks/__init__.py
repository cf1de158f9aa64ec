"""Prompt from an item, reward from a response. May import `problems`, `judge` and below; knows no model."""

from autoclave.tasks.code_generation import CodeGeneration

__all__ = ["CodeGeneration"]
