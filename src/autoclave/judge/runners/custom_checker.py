"""Run the checker of a problem on one result. It sees the expected answer: this cell is not the program's.

The checker's source runs first and defines `check`; then this side sends `ready`, and only then the output or result of
the program arrives, so a later failure comes from that. Two frames come: the question, plain data
`{"kind", "input", "expected"}`, and the answer as it left the program's cell. One goes back: `true`, `false` or
`neither`; none when the checker raises. The texts of `plain_data`, `frames`, `python_program` and `failure` stand
before this text, which adds `run`.
"""

import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from autoclave.judge.plain_data import decode
    from autoclave.judge.runners.failure import account_of
    from autoclave.judge.runners.frames import receive_frame, send_frame


def run(test: Any) -> None:
    """Check the one result and leave the process. Does not return."""
    try:
        namespace = test.main.__dict__
        namespace["__name__"] = "checker"
        exec(test.program.code, namespace)
        check = namespace["check"]
        send_frame(b"ready")
        question = decode(receive_frame())
        passed = check(question["input"], _result_in(receive_frame(), question["kind"]), question["expected"])
    except BaseException as error:  # noqa: BLE001  any exception ends the check
        test.report(account_of(error))
        os._exit(1)
    send_frame({True: b"true", False: b"false"}[passed] if type(passed) is bool else b"neither")
    os._exit(0)


def _result_in(answer: bytes, kind: str) -> Any:
    if kind == "stdin":
        return answer.decode("utf-8", "replace")
    _, result = decode(answer)
    return result
