"""Prompt from an item, reward from a response. May import `problems`, `judge` and below; knows no model."""

from autoclave.core.lazy import lazily
from autoclave.tasks.code_generation import CodeGeneration as CodeGeneration
from autoclave.tasks.execution_semantics import ExecutionSemantics as ExecutionSemantics
from autoclave.tasks.execution_semantics import OutputPrediction as OutputPrediction
from autoclave.tasks.execution_semantics import TestOutputPrediction as TestOutputPrediction
from autoclave.tasks.execution_semantics import TraceInference as TraceInference
from autoclave.tasks.interface import Task as Task
from autoclave.tasks.interface import badly_formed as badly_formed
from autoclave.tasks.interface import full_marks as full_marks
from autoclave.tasks.interface import item_of as item_of
from autoclave.tasks.interface import rewarded as rewarded
from autoclave.tasks.mathematics import Mathematics as Mathematics

__getattr__ = lazily(__name__)
