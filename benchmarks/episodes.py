"""Episodes of several turns: what they gain, cost and keep.

    python benchmarks/episodes.py [--only PART ...] [--seeds SEED ...] [--runs FOLDER] [--quick] [--json FILE]

Each part is a module that this one imports, and a function from the options to its figures.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

from episode_overhead import overhead_figures
from forged import forged_figures
from harness import argument_parser, finish, print_environment
from interleaving import idle_figures
from repair import repair_figures
from token_identity import identity_figures
from workspace_costs import workspace_figures

PARTS: dict[str, Callable[[argparse.Namespace], dict[str, Any]]] = {
    "forged": forged_figures,
    "tokens": identity_figures,
    "idle": idle_figures,
    "overhead": overhead_figures,
    "repair": repair_figures,
    "workspace": workspace_figures,
}
TRAINING = {"repair"}
"""Parts of several training runs, which --tiny leaves out unless they are asked for."""


def main() -> None:
    parser = argument_parser(__doc__ or "")
    parser.add_argument("--only", nargs="+", choices=PARTS, metavar="PART", help=", ".join(PARTS))
    parser.add_argument(
        "--runs", type=Path, metavar="FOLDER", help="keep the training runs here, and do not repeat them"
    )
    parser.add_argument(
        "--seeds", type=int, nargs="+", metavar="SEED", help="seeds of training runs; 0 and 1 by default"
    )
    options = parser.parse_args()
    parts = options.only or [part for part in PARTS if part not in TRAINING or not options.tiny]
    print_environment()
    finish("episodes", {key: value for part in parts for key, value in PARTS[part](options).items()}, options.json)


if __name__ == "__main__":
    main()
