"""Problems for small pretrained models: Python functions of one line, described in words."""

from autoclave.problems.functions.build import build_functions

__all__ = ["build_functions"]
