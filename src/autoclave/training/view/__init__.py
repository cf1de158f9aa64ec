"""One page of rollouts to look at, token by token, and to compare steps and runs with: `write_view`.

Reads run folders and writes one file. Imports `training.pages`, `core`, jinja2 and tokenizers; no torch.
"""

from autoclave.training.view.page import write_view
from autoclave.training.view.sources import Request

__all__ = ["Request", "write_view"]
