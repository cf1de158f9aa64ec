"""The command line: `python -m gauntlet` runs all on each backend that this host offers; exit code 1 for a hole."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, get_args

from autoclave.config.sandbox import Level, SandboxConfig
from autoclave.core import AutoclaveError
from gauntlet.course import Course, Result, totals
from gauntlet.entries import Entry, read_entries
from gauntlet.host import leave_shared_mounts

_NOBODY = 65534
_BACKENDS = ("namespace", "container", "subprocess")


def main() -> int:
    """Run what the arguments ask for. The exit code: 0 the defence held, 1 it did not, 3 nothing could run."""
    options = _options()
    if options.as_user:
        return _run_as_nobody()
    entries = [entry for entry in read_entries() if _is_chosen(entry, options.only)]
    if not entries:
        print(f"--only {options.only}: no entry has this in its name")
        return 2
    leave_shared_mounts()
    reports: list[dict[str, Any]] = []
    for backend, level in _places(options):
        report = _run(entries, backend, level, options.workers)
        reports.append(report)
    if options.json:
        options.json.write_text(json.dumps(reports, indent=1) + "\n", encoding="utf-8")
    ran = [report for report in reports if report["offered"]]
    return 3 if not ran else int(not all(report["held"] for report in ran))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m gauntlet", description=__doc__)
    parser.add_argument("--backend", choices=_BACKENDS, help="only this one; all by default")
    parser.add_argument("--level", choices=get_args(Level), help="only this one; by default all that confine a program")
    parser.add_argument("--only", metavar="TEXT", help="entries with TEXT in family/name")
    parser.add_argument("--workers", type=int, default=1, help="of the judge; with 1 programs share a zygote")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all results to FILE")
    parser.add_argument("--as-user", action="store_true", help="as root: run all of it as an ordinary user")
    return parser.parse_args()


def _is_chosen(entry: Entry, only: str | None) -> bool:
    return only is None or only in f"{entry.family}/{entry.name}"


def _places(options: argparse.Namespace) -> list[tuple[str, str]]:
    backends = [options.backend] if options.backend else _BACKENDS
    # Level `open` confines nothing: it is attacked on request only.
    levels = [options.level] if options.level else [level for level in get_args(Level) if level != "open"]
    return [(backend, level) for backend in backends for level in levels]


def _run(entries: list[Entry], backend: str, level: str, workers: int) -> dict[str, Any]:
    """Run the entries at one place and print the table."""
    report: dict[str, Any] = {"backend": backend, "level": level, "user": os.geteuid()}
    config = SandboxConfig.model_validate({"backend": backend, "level": level, "minimum_level": level})
    try:
        course = Course(config, workers=workers)
    except AutoclaveError as error:
        print(f"\n== backend {backend}, level {level}: not offered by this host: {error}")
        return report | {"offered": False, "why": str(error)}
    with course:
        print(f"\n== backend {backend}, level {course.level}, user {os.geteuid()}, {len(entries)} entries")
        results: list[Result] = []
        for result in course.run(entries):
            results.append(result)
            print(_line(result, course.level), flush=True)
    _print_totals(results, course.level)
    held = all(result.skipped or result.is_well(course.level) for result in results)
    found = [result.to_json(course.level) for result in results]
    return report | {"offered": True, "level": course.level, "held": held, "results": found}


def _line(result: Result, level: str) -> str:
    name = f"{result.family}/{result.name}"
    if result.skipped:
        return f"  -     {name:<48} {result.skipped.splitlines()[0][:110]}"
    found = " ".join(result.statuses)
    faults = [
        *["REWARDED"] * result.undeserved,
        *["REFUSED"] * result.refused,
        *["NO VERDICT"] * result.no_verdict,
        *["unexpected status"] * result.unexpected,
        *result.damage,
    ]
    mark = ("known" if result.known and faults else "ok") if result.is_well(level) else "FAIL"
    detail = "; ".join([*faults, *filter(None, result.messages)]) if faults else ""
    detail = f"{result.known} ({detail})" if mark == "known" else detail
    return f"  {mark:<5} {name:<48} {found:<32} {result.seconds:6.2f} s  {detail}".rstrip()


def _print_totals(results: list[Result], level: str) -> None:
    table = totals(results, level)
    columns = list(next(iter(table.values())))
    print(f"\n  {'family':<18}" + "".join(f"{column:>12}" for column in columns))
    for family, row in table.items():
        print(f"  {family:<18}" + "".join(f"{number:>12}" for number in row.values()))
    sums = [sum(row[column] for row in table.values()) for column in columns]
    print(f"  {'all':<18}" + "".join(f"{number:>12}" for number in sums), flush=True)


def _run_as_nobody() -> int:
    """Run the command again as an ordinary user. The interpreter must be one that others may read."""
    if os.geteuid() != 0:
        print("--as-user: only root can become another user; leave it away")
        return 2
    version = f"{sys.version_info[0]}.{sys.version_info[1]}"
    candidates = [sys.executable, shutil.which(f"python{version}", path="/usr/local/bin:/usr/bin")]
    command = [argument for argument in sys.argv[1:] if argument != "--as-user"]
    root = Path(__file__).parents[1]
    packages = [path for path in sys.path if path.endswith("site-packages")]
    environment = {
        "PYTHONPATH": os.pathsep.join([str(root / "src"), *packages]),
        "PYTHONDONTWRITEBYTECODE": "1",
        "PATH": os.environ.get("PATH", ""),
    }
    for interpreter in filter(None, candidates):
        ids: dict[str, Any] = {"user": _NOBODY, "group": _NOBODY, "extra_groups": [], "env": environment}
        try:
            tried = subprocess.run([interpreter, "-c", "import pydantic"], **ids, cwd=root, capture_output=True)
        except PermissionError:
            continue
        if tried.returncode == 0:
            return subprocess.run([interpreter, "-m", "gauntlet", *command], **ids, cwd=root).returncode
    print(
        f"--as-user: no Python {version} that user {_NOBODY} may run finds our packages; put the environment elsewhere"
    )
    return 3


if __name__ == "__main__":
    sys.exit(main())
