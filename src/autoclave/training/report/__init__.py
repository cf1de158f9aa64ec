"""One page that shows what a training run did: `write_report`.

Reads a run folder and writes `report.html` into it. Imports `core`, jinja2 and yaml; no torch, nothing else of ours.
"""

from autoclave.training.report.page import write_report

__all__ = ["write_report"]
