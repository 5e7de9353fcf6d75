"""Starting a background thread while signals come: the thread starts, and the caller sees its own exception or none."""

from __future__ import annotations

import threading

import pytest

from holdfast._runtime.threads import start_daemon
from tests.support.signal_injector import SOURCE, InjectedInterrupt, SignalInjector


def test_a_signal_while_a_thread_starts_raises_only_its_own_exception() -> None:
    """Inside ``Thread.start`` it left a condition broken: ``release unlocked lock`` instead of the handler's error."""
    number = 0
    while True:
        ran = threading.Event()
        injector = SignalInjector(number, places=(SOURCE, threading.__file__))
        try:
            with injector:
                start_daemon(ran.set, "holdfast-test")
        except InjectedInterrupt:
            start_daemon(ran.set, "holdfast-test")  # nothing is broken: the next one starts
        assert ran.wait(5)
        if not injector.interrupted_at:
            break
        number += 1
    assert number > 3


def test_a_thread_that_cannot_be_started_raises_where_it_was_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    with pytest.raises(RuntimeError, match="can't start"):
        start_daemon(lambda: None, "holdfast-test")
