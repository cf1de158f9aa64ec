"""One page that shows what a training run did, `write_report`, and one for several runs, `write_comparison`.

Reads run folders and writes one file. Imports `runs`, `tasks` for alignment samples, `core`, jinja2 and yaml; no torch.
"""

from autoclave.report.run_report.comparison import write_comparison
from autoclave.report.run_report.page import write_report

__all__ = ["write_comparison", "write_report"]
