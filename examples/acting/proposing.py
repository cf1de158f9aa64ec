"""Who proposes in these examples, a model or a record of what one proposed once, and what becomes of what is proposed.

What the examples share and their stories are not about: the options of the command line, and one line for an error.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterable
from typing import Any

from autoclave.core import AutoclaveError, InputError
from autoclave.runtime.proposals import Refused, chat_at, converse, refusal_of, result_of
from autoclave.runtime.session import Session

_INDENT = " " * len("    3f2a9c01  ")


def options_of(about: str | None) -> argparse.ArgumentParser:
    """A parser of what every example is told."""
    first = (about or "").splitlines()[0]
    parser = argparse.ArgumentParser(description=first)
    parser.add_argument("--endpoint", metavar="URL", help="of a server that speaks OpenAI's chat, such as .../v1")
    parser.add_argument("--model", help="its name there; the key is taken from OPENAI_API_KEY")
    return parser


def in_a_line(main: Callable[[], None]) -> None:
    """Run an example. What it cannot do is told in a line, with exit code 1."""
    try:
        main()
    except AutoclaveError as error:
        sys.exit(f"error: {error}")


def have_proposed(session: Session, options: argparse.Namespace, task: str, recorded: Iterable[dict[str, Any]]) -> None:
    """Have the task proposed, step by step, and do what is permitted.

    Raises:
        InputError: the endpoint refuses, or the model is not named.
        EngineFault: it does not answer.
    """
    if options.endpoint and not options.model:
        raise InputError(f"--endpoint {options.endpoint}: give --model NAME as well")
    print(f"\nthe task: {task}")
    if not options.endpoint:
        print("what a model proposed for it once:")
        for operation in recorded:
            act(session, operation)
        return
    print(f"what {options.model} proposes for it:")
    turns = converse(
        chat_at(options.endpoint, options.model, os.environ.get("OPENAI_API_KEY", "")),
        task,
        session.told(),
        session.operations,
    )
    answer: str | Refused | None = None
    while True:
        try:
            answer = act(session, turns.send(answer))
        except StopIteration as stop:
            print(f"the model: {stop.value}")
            return


def act(session: Session, operation: dict[str, Any]) -> str | Refused:
    """Do what is permitted; what became of it, for the model."""
    try:
        proposal = session.propose(operation, by="example")
        what = "; ".join(proposal.plan.changes) or f"{operation.get('operation', 'it')}: only reads"
        what = what.replace("; undo: ", f"\n{_INDENT}undo: ")
        print(f"    {proposal.action}  {operation['do']} ({proposal.plan.guarantee}): {what}")
        session.run(proposal.action, proposal.plan.digest)
    except InputError as error:
        print(f"    refused: {error}")
        return refusal_of(error)
    if delay_s := proposal.plan.delay_s:
        print(f"{_INDENT}queued for {delay_s:g} s")
    return result_of(proposal.plan)
