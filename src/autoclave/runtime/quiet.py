"""Prevents libraries from logging keys and values, whatever logging a program sets up."""

import logging

_LEVELS = {
    "httpx": logging.WARNING,  # addresses, with keys in the query
    "httpcore": logging.WARNING,  # headers
    "sqlglot": logging.CRITICAL,  # statements, with the values in them
}


def quieten(*libraries: str) -> None:
    """Limit the logging of libraries to what contains no keys or values. Called before each use."""
    for name in libraries:
        logging.getLogger(name).setLevel(_LEVELS[name])
