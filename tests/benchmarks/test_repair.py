"""The control of the benchmark of repair: whose feedback is dealt to whom."""

from __future__ import annotations

from repair import Dealer, mean_rates

from autoclave.core import Observation


def told(text: str) -> Observation:
    return Observation(({"role": "user", "content": text},))


def test_feedback_is_dealt_among_attempts_of_equal_status_at_other_problems():
    dealer = Dealer()
    dealer.deal("a", told("wrong answer\nInput:\n1"))
    dealer.deal("b", told("runtime error\nInput:\n2"))
    for _ in range(20):
        assert dealer.deal("a", told("runtime error\nInput:\n3")) == told("runtime error\nInput:\n2")
        assert dealer.deal("c", told("wrong answer\nInput:\n4")) == told("wrong answer\nInput:\n1")


def test_without_another_attempt_the_status_alone_is_read():
    dealer = Dealer()
    for _ in range(3):
        assert dealer.deal("a", told("wrong answer\nInput:\n1")) == told("wrong answer")


def test_the_end_of_an_episode_is_not_dealt():
    dealer = Dealer()
    end = Observation((), is_end=True)
    assert dealer.deal("a", end) is end


def test_a_problem_counts_where_every_seed_has_a_verdict():
    assert mean_rates([{"a": 0.5, "b": 1.0}, {"a": 1.0}]) == {"a": 0.75}
