"""What the pages about a run share: reading its folder, and showing rollouts and lessons.

`report` and `view` are built on it. Imports `core`, `pages` and yaml; no torch, nothing else of ours.
"""

from pathlib import Path

TEMPLATES = Path(__file__).parent
"""The folder of templates that pages about a run may include."""
