"""An observer cannot disturb locks; it gets every event in order, or the number of dropped events."""

from __future__ import annotations

import asyncio
import functools
import gc
import logging
import os
import subprocess
import sys
import threading
import time
import uuid
import weakref
from collections.abc import Callable
from typing import Any

import pytest

import holdfast
from holdfast._runtime.blocking import BLOCKING
from holdfast.observer import Acquired, Dropped, Event, Released, Renewed, delivery, reports
from tests.support.forking import in_a_child
from tests.support.waiting import LASTING, eventually, renewed

forks = pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")


def store() -> str:
    return f"memory:{uuid.uuid4().hex}"


def observers() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "holdfast-observer"]


def use(client: holdfast.Client, times: int = 1) -> None:
    lock = client.lock("a")
    for _ in range(times):
        with lock:
            pass


def test_events_arrive_in_order_on_a_separate_thread() -> None:
    events: list[Event] = []
    threads: set[int] = set()

    def observer(event: Event) -> None:
        threads.add(threading.get_ident())
        if not isinstance(event, Renewed):  # a hint from the engine may cause a renewal
            events.append(event)

    with holdfast.connect(store(), observer=observer) as locks:
        use(locks, 500)
    assert [event.kind for event in events] == ["acquired", "released"] * 500
    tokens = [event.token for event in events if isinstance(event, Acquired)]
    assert tokens == sorted(tokens)
    assert len(threads) == 1
    assert threading.get_ident() not in threads


def test_observer_thread_exists_only_with_an_observer_and_ends_with_the_client() -> None:
    eventually(lambda: not observers())
    before = 0
    with holdfast.connect(store()) as locks:
        use(locks)
        assert len(observers()) == before
    with holdfast.connect(store(), observer=lambda event: None) as locks:
        assert len(observers()) == before
        use(locks)
        assert len(observers()) == before + 1
    eventually(lambda: len(observers()) == before)


def test_blocked_observer_delays_neither_callers_nor_renewals(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reports, "FLUSH_WITHIN", delivery.FLUSH_WITHIN)
    entered, over = threading.Event(), threading.Event()

    def observer(event: Event) -> None:
        entered.set()
        over.wait(20)

    with holdfast.connect(store(), observer=observer, ttl=LASTING) as locks:
        lease = locks.lock("kept").acquire()
        assert entered.wait(5)
        use(locks, 200)
        eventually(renewed(lease))
        lease.release()
        began = time.monotonic()
        locks.close()
        assert (
            time.monotonic() - began < 1.0 + delivery.FLUSH_WITHIN + 1.0
        )  # one second for the locks, half for the flush
        over.set()


def test_events_beyond_the_capacity_are_counted_and_logged_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(delivery, "CAPACITY", 10)
    # A hint from the engine may cause a renewal: its event would be dropped, and counted with those of the holds.
    monkeypatch.setattr(reports.Reports, "batch", lambda *_: None)
    events: list[Event] = []
    entered, over = threading.Event(), threading.Event()

    def observer(event: Event) -> None:
        entered.set()
        assert over.wait(20)
        events.append(event)

    def dropped() -> list[int]:
        return [event.count for event in list(events) if isinstance(event, Dropped)]

    def accounted_for() -> int:
        """A hold whose Acquired event was dropped counts once: its end is not reported either."""
        return sum(dropped()) + sum(isinstance(event, Released) for event in list(events))

    with holdfast.connect(store(), observer=observer) as locks:
        for rounds in (1, 2):
            entered.clear()
            over.clear()
            use(locks)
            assert entered.wait(5)
            use(locks, 50)
            over.set()
            # All of them, not only the first Dropped event: an event that is delivered later would set ``entered``.
            eventually(lambda: accounted_for() == rounds * 51)  # noqa: B023
    assert len(dropped()) == 2
    assert accounted_for() == 2 * 51
    assert caplog.text.count("too slow") == 1
    acquired = {event.token for event in events if isinstance(event, Acquired)}
    assert {event.token for event in events if isinstance(event, Released)} <= acquired


@pytest.mark.parametrize("error", [ValueError("no"), SystemExit(3)], ids=lambda error: type(error).__name__)
def test_observer_that_raises_is_logged_once_and_called_again(
    error: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    calls: list[Event] = []

    def observer(event: Event) -> None:
        calls.append(event)
        raise error

    with holdfast.connect(store(), observer=observer) as locks:
        use(locks, 50)
    assert len(calls) >= 100
    logged = [record for record in caplog.records if record.name == "holdfast.observer"]
    assert len(logged) == len({event.kind for event in calls})
    assert all(type(error).__name__ in record.getMessage() for record in logged)


def test_log_handler_that_raises_does_not_end_the_delivery() -> None:
    class Failing(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            raise ZeroDivisionError

    calls: list[Event] = []

    def observer(event: Event) -> None:
        calls.append(event)
        raise KeyError

    logger, handler = logging.getLogger("holdfast.observer"), Failing()
    logger.addHandler(handler)
    try:
        with holdfast.connect(store(), observer=observer) as locks:
            use(locks, 3)
    finally:
        logger.removeHandler(handler)
    assert [event.kind for event in calls if event.kind != "renewed"] == ["acquired", "released"] * 3


def test_observer_may_lock_and_close_its_own_client() -> None:
    seen: list[str] = []

    def observer(event: Event) -> None:
        seen.append(f"{event.kind} {getattr(event, 'name', '')}")
        if isinstance(event, Acquired) and event.name == "a":
            with locks.lock("inner"):
                pass
        if isinstance(event, Released) and event.name == "inner":
            locks.close()

    locks = holdfast.connect(store(), observer=observer)
    use(locks)
    eventually(lambda: "released inner" in seen)
    eventually(lambda: locks._closed)
    with pytest.raises(holdfast.UsageError, match="closed"):
        use(locks)


def test_observer_that_locks_endlessly_does_not_block_close() -> None:
    def observer(event: Event) -> None:
        use(locks)

    locks = holdfast.connect(store(), observer=observer)
    use(locks)
    began = time.monotonic()
    locks.close()
    assert time.monotonic() - began < 5
    eventually(lambda: not observers())


def test_async_client_delivers_on_a_thread_and_close_does_not_block_the_loop() -> None:
    async def main() -> None:
        events: list[Event] = []
        beats = 0

        def observer(event: Event) -> None:
            time.sleep(0.02)
            events.append(event)

        async def beat() -> None:
            nonlocal beats
            while True:
                beats += 1
                await asyncio.sleep(0.001)

        async with holdfast.aio.connect(store(), observer=observer) as locks:
            for _ in range(4):
                async with locks.lock("a"):
                    pass
            beating = asyncio.create_task(beat())
        beating.cancel()
        assert [event.kind for event in events if not isinstance(event, Renewed)] == ["acquired", "released"] * 4
        assert beats > 5

    asyncio.run(main())


async def _async_function(event: Event) -> None: ...


class _AsyncCallable:
    async def __call__(self, event: Event) -> None: ...


@pytest.mark.parametrize("observer", [_async_function, functools.partial(_async_function), _AsyncCallable()])
@pytest.mark.parametrize("connect", [holdfast.connect, holdfast.aio.connect])
def test_coroutine_function_is_refused(connect: Callable[..., Any], observer: Any) -> None:
    with pytest.raises(holdfast.UsageError, match="coroutine function"):
        connect("memory:", observer=observer)


def test_observer_that_is_not_callable_or_given_as_text_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    with pytest.raises(TypeError, match="observer is a str"):
        holdfast.connect("memory:", observer="print")  # type: ignore[arg-type]
    with pytest.raises(holdfast.UsageError, match="Python object"):
        holdfast.connect("sqlite:?observer=print")
    monkeypatch.setenv("HOLDFAST_OBSERVER", "print")
    with pytest.raises(holdfast.UsageError, match="HOLDFAST_OBSERVER"):
        holdfast.connect()
    monkeypatch.delenv("HOLDFAST_OBSERVER")
    (tmp_path / "locks.toml").write_text("url = 'memory:'\nobserver = 'print'\n")
    monkeypatch.setenv("HOLDFAST_CONFIG", str(tmp_path / "locks.toml"))
    with pytest.raises(holdfast.UsageError, match="observer"):
        holdfast.connect()


def test_coroutine_returned_by_an_observer_is_closed_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    with holdfast.connect(store(), observer=lambda event: _async_function(event)) as locks:
        use(locks)
    assert "coroutine" in caplog.text


@pytest.mark.filterwarnings("ignore:a lease on lock:ResourceWarning")
@pytest.mark.parametrize("held", [False, True], ids=["nothing held", "a lease dropped with it"])
def test_collected_client_referenced_by_its_observer_delivers_its_events(held: bool) -> None:
    eventually(lambda: not observers())
    before = 0
    kinds: list[str] = []

    class Observer:
        client: holdfast.Client

        def __call__(self, event: Event) -> None:
            assert self.client is not None
            if not isinstance(event, Renewed):
                kinds.append(event.kind)

    observer = Observer()
    observer.client = locks = holdfast.connect(store(), observer=observer)
    use(locks)
    lease = locks.lock("b").acquire() if held else None
    gone = weakref.ref(locks)
    del locks, observer, lease
    eventually(lambda: gc.collect() is not None and gone() is None)
    eventually(lambda: len(observers()) == before)
    assert kinds == ["acquired", "released"] * (2 if held else 1)


def test_observer_registered_during_the_end_of_its_client_gets_its_events() -> None:
    """The collector may pause between clearing the references to a client and running its finalizers."""
    events: list[Event] = []
    unreachable: Any = delivery.ObserverCell(events.append)
    deliver = delivery.Delivery("memory", unreachable, BLOCKING.event())
    deliver._cell = weakref.ref(type("Gone", (), {})())  # cleared, but its finalizer has not run
    deliver.put(lambda: Dropped(at=0.0, engine="memory", count=1))
    assert deliver.start()
    deliver.shut()
    deliver.adopt(events.append)
    eventually(deliver.stopped.is_set)
    assert len(events) == 1


def test_events_continue_while_a_lease_outlives_its_client() -> None:
    kinds: list[str] = []
    lease = holdfast.connect(store(), observer=lambda event: kinds.append(event.kind)).lock("a").acquire()
    gc.collect()
    lease.release()
    eventually(lambda: "released" in kinds)
    assert kinds[0] == "acquired"
    del lease


@forks
def test_forked_child_has_its_own_queue_and_no_event_is_delivered_twice() -> None:
    read, write = os.pipe()
    over = threading.Event()

    def observer(event: Event) -> None:
        over.wait(20)
        if isinstance(event, (Acquired, Released)):
            os.write(write, f"{os.getpid()} {event.kind} {getattr(event, 'name', '')}\n".encode())

    with holdfast.connect(store(), observer=observer) as locks:
        lease = locks.lock("parents").acquire()  # queued at the fork because the observer is blocked

        def child() -> bool:
            over.set()
            assert lease.lost_reason == "forked"
            with locks.lock("childs"):
                pass
            locks.close()
            return True

        assert in_a_child(child)
        over.set()
        lease.release()
    os.close(write)
    with os.fdopen(read) as lines:
        seen = [line.split() for line in lines]
    parents = [line[1:] for line in seen if line[0] == str(os.getpid())]
    childs = [line[1:] for line in seen if line[0] != str(os.getpid())]
    assert parents == [["acquired", "parents"], ["released", "parents"]]
    assert childs == [["acquired", "childs"], ["released", "childs"]]


def test_interpreter_exit_delivers_queued_events() -> None:
    code = (
        "import sys, holdfast\n"
        "locks = holdfast.connect('memory:', observer=lambda event: print(event.kind, flush=True))\n"
        "lease = locks.lock('a').acquire()\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=30, check=True)
    assert [kind for kind in done.stdout.split() if kind != "renewed"] == ["acquired", "lost"]
    assert done.stderr == ""


def test_client_locks_even_if_no_observer_thread_can_start(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def none_left(main: object, name: str) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(delivery, "start_daemon", none_left)
    caplog.set_level(logging.WARNING, "holdfast.observer")
    with holdfast.connect(store(), observer=lambda event: None) as locks, locks.lock("a") as lease:
        assert lease.held
    assert "no thread" in caplog.text
