"""Verdicts of programs that were judged before, by content: what a second run does not judge again.

One SQLite file that several processes may use. A verdict is found by tests, program and settings of the judge, never
by names. Faults are not kept.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from autoclave.core import Verdict
from autoclave.core.closing import Closing
from autoclave.core.json import canonical_json, from_plain, to_plain
from autoclave.core.kept_texts import KeptTexts
from autoclave.judge import JudgeJob

_TOGETHER = 64
"""Verdicts that are kept in one transaction."""


class VerdictCache(Closing):
    """Of one thread. `judge_settings` is all that verdicts depend on beside problem and program.

    Raises:
        InputError: the file is damaged, or nothing can be written there.
    """

    def __init__(self, path: Path, judge_settings: object) -> None:
        self._kept = KeptTexts(path, "verdicts")
        self.judge_identity = hashlib.sha256(canonical_json(judge_settings)).hexdigest()
        self._waiting: list[tuple[bytes, str]] = []
        self.num_found = self.num_kept = 0

    def get(self, job: JudgeJob) -> Verdict | None:
        """What this program got before."""
        text = self._kept.get(self._key(job))
        if text is None:
            return None
        self.num_found += 1
        return from_plain(Verdict, json.loads(text), "cached verdict")

    def put(self, job: JudgeJob, verdict: Verdict) -> None:
        """Keep a verdict; it is durable once some more have come, or `flush` was called."""
        if verdict.fault is not None:
            return
        self.num_kept += 1
        self._waiting.append((self._key(job), json.dumps(to_plain(verdict))))
        if len(self._waiting) >= _TOGETHER:
            self.flush()

    def flush(self) -> None:
        """Make all that was put durable."""
        if self._waiting:
            self._kept.put(self._waiting)
            self._waiting = []

    def _key(self, job: JudgeJob) -> bytes:
        known = [
            self.judge_identity,
            job.problem.digest,
            job.program.language,
            job.program.source,
            job.tests,
            job.stop_at_failure,
        ]
        return hashlib.sha256(canonical_json(known)).digest()

    def close(self) -> None:
        self.flush()
        self._kept.close()
