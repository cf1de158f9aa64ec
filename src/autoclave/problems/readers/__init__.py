"""Public problem sets as problems. Nothing that a set holds is executed or unpickled."""

from autoclave.problems.readers.layouts import LAYOUTS, Layout, read_rows
from autoclave.problems.readers.raw_files import RawFiles, raw_files

__all__ = ["LAYOUTS", "Layout", "RawFiles", "raw_files", "read_rows"]
