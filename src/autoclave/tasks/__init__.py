"""Prompt from an item, reward from a response. May import `problems`, `judge` and below; knows no model."""

from autoclave.tasks.code_generation import CodeGeneration
from autoclave.tasks.execution_semantics import (
    ExecutionSemantics,
    OutputPrediction,
    TestOutputPrediction,
    TraceInference,
)
from autoclave.tasks.interface import Task, badly_formed, full_marks, item_of, rewarded
from autoclave.tasks.mathematics import Mathematics

__all__ = [
    "CodeGeneration",
    "ExecutionSemantics",
    "Mathematics",
    "OutputPrediction",
    "Task",
    "TestOutputPrediction",
    "TraceInference",
    "badly_formed",
    "full_marks",
    "item_of",
    "rewarded",
]
