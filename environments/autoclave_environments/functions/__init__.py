"""Problems for small pretrained models: Python functions of one line, described in words."""

from autoclave.config import FunctionsConfig, SftConfig
from autoclave.problems import Demonstration
from autoclave_environments.functions.build import build_functions

__all__ = ["FunctionProblems", "build_functions"]


class FunctionProblems:
    """The source of `problems.name=functions`; see `autoclave.problems.ProblemSource`."""

    heldout_description = "Functions that occur in no training problem, with any constant."

    def __init__(self, config: FunctionsConfig) -> None:
        self.train, self.heldout = build_functions(config)

    def demonstrations(self, sft: SftConfig) -> list[Demonstration]:
        """Return none of its own: the warm start imitates the solutions of the training problems."""
        return []
