"""Prompt from an item, reward from a response. May import `problems`, `judge` and below; knows no model."""

from autoclave.tasks.code_generation import CodeGeneration
from autoclave.tasks.interface import Task
from autoclave.tasks.mathematics import Mathematics

__all__ = ["CodeGeneration", "Mathematics", "Task"]
