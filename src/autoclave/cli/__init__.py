"""The command line: thin commands over `compose`. Exit codes: 0 done, 1 failed or incomplete, 2 bad input, 3 host."""

from autoclave.cli.main import main

__all__ = ["main"]
