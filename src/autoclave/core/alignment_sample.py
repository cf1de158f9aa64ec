"""An alignment sample: a program, an input, and what a model is to infer of the run. A line of an alignment samples
file.

Values are spelled as traces spell them (`core.trace.literal`). What stands in an alignment sample was written by a
model and said by a program: it is shown and compared, never run and never trusted to be well-formed.
"""

import hashlib
from dataclasses import dataclass, field
from typing import Any, Literal

from pydantic import ConfigDict

from autoclave.core.json import canonical_json
from autoclave.core.trace import value_of


@dataclass(frozen=True, slots=True, kw_only=True)
class AlignmentSample:
    """One question about one run of one program.

    Attributes:
        problem_id: the problem that the program was written for.
        test: index of the test whose input it is.
        program: its text.
        entry: the function that is called, or `<module>`.
        input: what it is given: standard input, or the call as Python spells it.
        variables: name -> Python literal of its final value; those that are asked.
        informative: those of them that are neither an echo of the input nor a constant of the text.
        result: literal of what a call returns, or what a main program prints; None where it is not asked.
        source: where the program came from.
        version: of the policy that wrote it; 0 where no policy of the run did.
    """

    __pydantic_config__ = ConfigDict(extra="forbid")
    format: Literal["autoclave-alignment-sample/1"] = "autoclave-alignment-sample/1"
    problem_id: str
    test: int
    program: str
    entry: str
    input: str
    variables: dict[str, str] = field(default_factory=dict[str, str])
    informative: list[str] = field(default_factory=list[str])
    result: str | None = None
    source: Literal["failed", "random", "reference"] = "failed"
    version: int = 0

    @property
    def values(self) -> dict[str, Any]:
        """The variables as Python values."""
        return {name: value_of(text) for name, text in self.variables.items()}

    @property
    def key(self) -> str:
        """sha256 (hex) of program and input: two alignment samples with one key teach the same."""
        return hashlib.sha256(canonical_json([self.program, self.entry, self.input])).hexdigest()
