"""Made-up run folders, those of the reports' tests."""

from tests.report.conftest import add_lines, make_run

__all__ = ["add_lines", "make_run"]
