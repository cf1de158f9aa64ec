"""Python sources of others as trees: without running them, and without warnings about their style."""

from __future__ import annotations

import ast
import warnings

UNREADABLE = (SyntaxError, ValueError, TypeError, RecursionError, MemoryError)
"""What Python raises on sources, trees and literals that are wrong, nested too deeply or too large."""


def tree_of(source: str) -> ast.Module | None:
    """The tree of a source, None where Python cannot read it."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.parse(source)
    except UNREADABLE:
        return None
