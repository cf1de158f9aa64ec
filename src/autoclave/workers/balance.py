"""Split of the rows of a batch into parts, so that all parts have about the same work. Pure functions."""

from __future__ import annotations

import heapq

import numpy as np

from autoclave.core.rollout import IntArray


def even_parts(lengths: IntArray, stages: IntArray, parts: int) -> list[IntArray]:
    """Rows for each of `parts`, with about equal numbers of tokens within every stage.

    Ranks wait for each other at the end of a stage (an optimizer step), so that balance over the whole batch is not
    enough. Within a stage the longest row left goes to the part with the fewest tokens (Graham 1969, "Bounds on
    multiprocessing timing anomalies", LPT rule); ties go to the part with the fewest tokens in all, then the lowest.

    Args:
        lengths: (B,) tokens of each row.
        stages: (B,) int64, the stage of each row.
        parts: how many parts; 1 or more.

    Returns:
        (b_p,) int64 row indices of each part p, ascending; each row is in exactly one. In each stage, two parts differ
        by at most the tokens of its longest row.
    """
    rows: list[list[int]] = [[] for _ in range(parts)]
    totals = [0] * parts
    for stage in np.unique(stages):
        members = np.flatnonzero(stages == stage)
        loads = [(0, totals[part], part) for part in range(parts)]
        heapq.heapify(loads)
        for row in members[np.argsort(-lengths[members], kind="stable")].tolist():
            load, total, part = loads[0]
            rows[part].append(row)
            heapq.heapreplace(loads, (load + int(lengths[row]), total, part))
        for load, _, part in loads:
            totals[part] += load
    return [np.array(sorted(part), dtype=np.int64) for part in rows]


def bounded_parts(lengths: IntArray, most: int) -> list[IntArray]:
    """As few parts as the rule of `even_parts` fills to at most `most` tokens, and of about equal numbers of tokens.

    Args:
        lengths: (B,) tokens of each row.
        most: tokens of a part; a row that is as long or longer is a part of its own.

    Returns:
        (b_p,) int64 row indices of each part p, ascending; each row is in exactly one, and no part is empty.
    """
    is_alone = lengths >= most
    alone, others = np.flatnonzero(is_alone), np.flatnonzero(~is_alone)
    rest = lengths[others]
    parts = max(-(-int(rest.sum()) // most), int((2 * rest > most).sum()))  # no fewer can hold them
    together = even_parts(rest, np.zeros_like(rest), parts) if len(rest) else []
    while any(rest[part].sum() > most for part in together):
        parts += 1
        together = even_parts(rest, np.zeros_like(rest), parts)
    return [*(others[part] for part in together), *alone[:, None]]
