"""The judge for other frameworks: `score` for any, and modules for TRL, verl and Inspect that load them when imported.

    from autoclave.integrations import score
    rewards = score(responses, problems)

A fault of the judge is never a reward; each function documents how it reports one.
"""

from autoclave.integrations.scoring import Scorer, problem_of, score

__all__ = ["Scorer", "problem_of", "score"]
