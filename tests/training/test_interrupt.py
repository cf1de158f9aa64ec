"""Ctrl-C and SIGTERM are requests; a second one is an exception; afterwards signals are what they were."""

from __future__ import annotations

import signal

import pytest

from autoclave.training.watchdog import StopRequest


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_first_signal_is_a_request_and_the_second_ends_the_run(number):
    with StopRequest() as stop:
        assert not stop.is_made
        signal.raise_signal(number)
        assert stop.is_made
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(number)


def test_handlers_are_put_back():
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    with pytest.raises(ValueError, match="ended early"), StopRequest():
        raise ValueError("ended early")
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before
