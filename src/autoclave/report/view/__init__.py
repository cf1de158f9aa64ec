"""One page of rollouts to look at, token by token, and to compare steps and runs with: `write_view`.

Reads run folders and writes one file. Imports `runs`, `core`, jinja2 and tokenizers; no torch.
"""

from autoclave.report.view.page import write_view
from autoclave.report.view.survey import Request

__all__ = ["Request", "write_view"]
