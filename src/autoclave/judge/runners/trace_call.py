"""Call one function of the program as `call_server` does, and send back its final variables instead of an answer.

The texts of `traced_values`, `plain_data`, `frames`, `python_program`, `failure`, `call_server` and `observation` stand
before this text, whose `run` replaces that of `call_server`.
"""

import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from autoclave.judge.plain_data import decode
    from autoclave.judge.runners.call_server import _load  # pyright: ignore[reportPrivateUsage]
    from autoclave.judge.runners.failure import account_of
    from autoclave.judge.runners.frames import receive_frame
    from autoclave.judge.runners.observation import Observation, tell_trace


def run(test: Any) -> None:
    """Serve the one call and leave the process. Does not return."""
    request = decode(receive_frame())
    observation = Observation()
    try:
        result = observation.call(_load(test, request), *request["arguments"])
    except BaseException as error:  # noqa: BLE001  whatever it is, it is how the call ended
        test.tell(account_of(error))
        tell_trace(observation.variables())
        os._exit(1)
    tell_trace(observation.variables(), result)
    os._exit(0)
