"""The built-in problems for small pretrained models: Python functions of one line, asked for in words."""

from autoclave.problems.functions.build import build_functions

__all__ = ["build_functions"]
