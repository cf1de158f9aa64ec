"""What the way from an agent to a reversible action costs: in Python, over MCP, and by hooks and shell of a host.

    python benchmarks/agents.py [--quick] [--json FILE] [--only PART] [--sessions NUMBER] [--seed SEED]

One small file is written by a session of `autoclave.act` and by a tool call of the official MCP client, in turn. The
overhead is the difference of the medians. The cost of opening the state for each call, so that others can work on it in
between, is that of a session in Python over an exclusive one. Hooks and shell are measured in `observing.py`, random
sessions with kills in `agent_sessions.py`, the same under a published undo tool in `published_undo.py`.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import anyio
from agent_sessions import wrong_restores
from harness import argument_parser, finish, print_environment, sized
from mcp import Client, StdioServerParameters
from observing import missed_changes, observer_overhead, shell_overhead
from published_undo import wrong_rewinds

import autoclave.act as act
from autoclave.runtime.opening import open_records
from autoclave.runtime.policy import Grant


def main() -> None:
    parser = argument_parser(__doc__ or "")
    parser.add_argument(
        "--only", choices=("calls", "opening", "observer", "shell", "changes", "sessions", "published"), help="one part"
    )
    parser.add_argument("--sessions", type=int, help="number of random sessions")
    parser.add_argument("--seed", type=int, default=0, help="seed of the random sessions")
    options = parser.parse_args()
    num_sessions = options.sessions or sized(options, 1000, 10, 1)
    print_environment()
    rounds, few = sized(options, 300, 100, 2), sized(options, 40, 15, 2)
    num_files = sized(options, 10_000, 10_000, 200)
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        parts: dict[str, Callable[[], dict[str, float]]] = {
            "calls": lambda: anyio.run(calls, place, rounds),
            "opening": lambda: opening(place, rounds),
            "observer": lambda: observer_overhead(place, num_files, few),
            "shell": lambda: shell_overhead(place, num_files, few),
            "changes": lambda: missed_changes(place, sized(options, 1000, 100, 5)),
            "sessions": lambda: anyio.run(wrong_restores, place, num_sessions, options.seed),
            "published": lambda: wrong_rewinds(place, sized(options, 200, 10, 0)),
        }
        figures: dict[str, float] = {}
        for name in [options.only] if options.only else parts:
            figures |= parts[name]()
    finish("agents", figures, options.json)


async def calls(place: Path, rounds: int) -> dict[str, float]:
    """Milliseconds of a write by a session in Python, and of one through the MCP server beyond that."""
    (root := place / "shared").mkdir()
    with open_records(root) as (_, permissions):
        permissions.grant(Grant(resources=("files/**",), verbs=("*",)))
    words = ["-m", "autoclave", "act", "mcp", "--root", str(root)]
    python, server = list[float](), list[float]()
    with act.session(root) as session:
        async with Client(StdioServerParameters(command=sys.executable, args=words)) as client:
            for number in range(rounds + 1):
                began = time.perf_counter()
                result = session.call("write", {"path": "python", "content": f"{number}\n"})
                done = time.perf_counter()
                answer = await client.call_tool("write", {"path": "server", "content": f"{number}\n"})
                if result.is_error or answer.is_error:
                    raise AssertionError(result, answer)
                if number:  # the first loads libraries
                    python.append(done - began)
                    server.append(time.perf_counter() - done)
    own, through = (statistics.median(each) * 1000 for each in (python, server))
    return {"python_call_ms": own, "mcp_call_ms": through, "mcp_call_overhead_ms": through - own}


def opening(place: Path, rounds: int) -> dict[str, float]:
    """Milliseconds that a call takes for opening and closing the state."""
    times: dict[bool, list[float]] = {True: [], False: []}
    for is_exclusive, found in times.items():
        (root := place / f"exclusive-{is_exclusive}").mkdir()
        with act.session(root, allow=["files/**"], exclusive=is_exclusive) as session:
            for number in range(rounds):
                began = time.perf_counter()
                session.call("write", {"path": "a", "content": f"{number}\n"})
                found.append(time.perf_counter() - began)
    shared, exclusive = (statistics.median(times[is_exclusive]) * 1000 for is_exclusive in (False, True))
    return {"exclusive_call_ms": exclusive, "opening_ms": shared - exclusive}


if __name__ == "__main__":
    main()
