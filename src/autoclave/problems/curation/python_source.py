"""Python sources of others as trees: without running them, and without warnings about their style."""

from __future__ import annotations

import ast
import warnings


def tree_of(source: str) -> ast.Module | None:
    """The tree of a source, None where Python cannot read it."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
