"""A signal handler may raise at any instruction of ``acquire`` and ``release``: the lock is free afterwards."""

from __future__ import annotations

import contextlib
import gc
import itertools
from collections.abc import Callable
from typing import Any

import pytest
import redis

from holdfast.compat.redis_py import Lock, outliving
from tests.support.signal_injector import SOURCE, InjectedInterrupt, SignalInjector

#: No code can protect the first instruction of the called function: that signal belongs to the caller.
ENTRIES = ("in release", "in __exit__")


@pytest.fixture
def client(redis_url: str) -> Any:
    with redis.Redis.from_url(redis_url) as client:
        yield client


def block(lock: Lock) -> None:
    with lock:
        pass


def calls(lock: Lock) -> None:
    lock.acquire()
    lock.release()


@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.parametrize("timeout", [None, 60])
@pytest.mark.parametrize("use", [block, calls])
def test_interrupted_lock_is_free_although_its_object_is_alive(
    client: Any, use: Callable[[Lock], None], timeout: float | None
) -> None:
    def interrupted(lock: Lock, place: int) -> str | None:
        injector = SignalInjector(place, places=(f"{SOURCE}/compat",))
        with contextlib.suppress(InjectedInterrupt), injector:
            use(lock)
        return injector.interrupted_at[0] if injector.interrupted_at else None

    entries: list[str] = []
    for place in itertools.count():
        lock = Lock(client, f"stock {place}", timeout=timeout)
        where = interrupted(lock, place)
        if where is None:
            break
        gc.collect()
        if lock.lease is not None:
            entries.append(where)
            lock.release()
        assert Lock(client, lock.name, timeout=1).acquire(blocking_timeout=20), where
        assert lock.lease is None
    assert place > 20
    assert len(entries) <= 1
    assert all(where.endswith(ENTRIES) for where in entries)


def test_several_threads_may_drop_locks_with_timeouts_concurrently(monkeypatch: pytest.MonkeyPatch) -> None:
    class ChangedMeanwhile(dict[Any, None]):
        def __iter__(self) -> Any:
            iterator = super().__iter__()
            self[object()] = None
            return iterator

    class Kept:
        held = True

        def on_lost(self, callback: Any) -> None:
            pass

    monkeypatch.setattr(outliving, "_kept", ChangedMeanwhile())
    lease = Kept()
    outliving.keep(lease)
    assert lease in outliving._kept
