"""Prompt from an item, reward from a response. May import `problems`, `judge` and below; knows no model."""

from autoclave.tasks.code_generation import CodeGeneration
from autoclave.tasks.execution_semantics import (
    ExecutionSemantics,
    OutputPrediction,
    TestOutputPrediction,
    TraceInference,
)
from autoclave.tasks.interface import Task
from autoclave.tasks.mathematics import Mathematics

__all__ = [
    "CodeGeneration",
    "ExecutionSemantics",
    "Mathematics",
    "OutputPrediction",
    "Task",
    "TestOutputPrediction",
    "TraceInference",
]
