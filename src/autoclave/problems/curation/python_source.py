"""Parse untrusted Python sources without running them, and without warnings about their style."""

import ast
import warnings

UNREADABLE = (SyntaxError, ValueError, TypeError, RecursionError, MemoryError)
"""Exceptions that Python raises on sources, trees and literals that are wrong, nested too deeply or too large."""


def tree_of(source: str) -> ast.Module | None:
    """Return the tree of a source, None where Python cannot parse it."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.parse(source)
    except UNREADABLE:
        return None
