"""Call one function of the program as `call_server` does, and send back its final variables instead of an answer.

The texts of `traced_values`, `plain_data`, `frames`, `python_program`, `failure`, `call_server` and `observation` stand
before this text, whose `_load` and `run` replace those of `call_server`: its `_call` makes the call, as in a verdict.
"""

import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from autoclave.judge.plain_data import decode
    from autoclave.judge.runners.call_server import _call, _load  # pyright: ignore[reportPrivateUsage]
    from autoclave.judge.runners.failure import account_of
    from autoclave.judge.runners.frames import receive_frame
    from autoclave.judge.runners.observation import Observation, report_trace

_load_program, _observation = _load, Observation()


def _load(test: Any, request: Any) -> Any:
    """Run preamble and program; return the function to call, observed from its next call on."""
    function = _load_program(test, request)
    _observation.await_call(function)
    return function


def run(test: Any) -> None:
    """Serve the one call and leave the process. Does not return."""
    request = decode(receive_frame())
    try:
        result = _observation.returned(_call(test, request))
    except BaseException as error:  # noqa: BLE001  any exception ends the call
        test.report(account_of(error))
        report_trace(_observation.variables())
        os._exit(1)
    report_trace(_observation.variables(), result)
    os._exit(0)
