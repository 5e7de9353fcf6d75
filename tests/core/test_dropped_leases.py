"""A lease that was dropped without release is logged with the line that acquired it."""

from __future__ import annotations

import _thread
import asyncio
import contextlib
import gc
import logging
import subprocess
import sys
import threading
import time
import uuid
import weakref
from collections.abc import Callable, Iterator
from inspect import currentframe
from typing import Any

import pytest

import holdfast
from holdfast.lease import BaseLease
from tests.support.waiting import LASTING, eventually, renewed, until

pytestmark = pytest.mark.filterwarnings("ignore:a lease on lock:ResourceWarning")


def store() -> str:
    return f"memory:{uuid.uuid4().hex}"


def line() -> int:
    """The line of the caller."""
    frame = currentframe()
    assert frame is not None
    assert frame.f_back is not None
    return frame.f_back.f_lineno


def reports(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == "holdfast.lease"]


def by_acquire(lock: holdfast.Lock) -> tuple[holdfast.Lease, int]:
    return lock.acquire(), line()


def by_try_acquire(lock: holdfast.Lock) -> tuple[holdfast.Lease, int]:
    lease, here = lock.try_acquire(), line()
    assert lease is not None
    return lease, here


def by_a_stack(lock: holdfast.Lock) -> tuple[holdfast.Lease, int]:
    stack = contextlib.ExitStack()
    lease, here = stack.enter_context(lock), line()
    stack.pop_all()
    return lease, here


def by_a_generator(lock: holdfast.Lock) -> tuple[holdfast.Lease, int]:
    @contextlib.contextmanager
    def held() -> Iterator[tuple[holdfast.Lease, int]]:
        yield lock.acquire(), line()

    with held() as found:
        return found


def by_re_entry(lock: holdfast.Lock) -> tuple[holdfast.Lease, int]:
    with lock:
        return lock.acquire(), line()


def by_many_lines(lock: holdfast.Lock) -> tuple[holdfast.Lease, int]:
    here = line() + 1
    lease = lock.acquire(
        timeout=5,
    )
    return lease, here


@pytest.mark.parametrize(
    "acquire", [by_acquire, by_try_acquire, by_a_stack, by_a_generator, by_re_entry, by_many_lines]
)
def test_the_log_names_the_line_that_acquired_it(
    acquire: Callable[[holdfast.Lock], tuple[holdfast.Lease, int]], caplog: pytest.LogCaptureFixture
) -> None:
    with holdfast.connect(store()) as locks:
        lease, where = acquire(locks.lock("forgotten"))
        assert reports(caplog) == []
        del lease
        gc.collect()
        eventually(lambda: reports(caplog))
    (report,) = reports(caplog)
    assert "'forgotten'" in report
    assert f"{__file__}:{where} in {acquire.__name__}" in report
    assert caplog.records[0].levelno == logging.WARNING


def test_the_log_names_the_line_if_the_finaliser_has_not_run_yet(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For a lease in a reference cycle, the collector reports the lease as garbage before it calls ``__del__``."""
    monkeypatch.delattr(BaseLease, "__del__")
    with holdfast.connect(store()) as locks:
        lease, where = by_acquire(locks.lock("a"))
        del lease
        eventually(lambda: reports(caplog))
    assert f"{__file__}:{where} in by_acquire" in reports(caplog)[0]


def test_the_warning_names_the_line_too(caplog: pytest.LogCaptureFixture) -> None:
    with holdfast.connect(store()) as locks:
        lease, where = by_acquire(locks.lock("a"))
        with pytest.warns(ResourceWarning, match=f"{__file__}:{where} in by_acquire"):
            del lease
        eventually(lambda: reports(caplog))  # else the next test would find it


def test_a_lease_that_another_thread_drops_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    with holdfast.connect(store()) as locks:
        leases: list[Any] = []
        thread = threading.Thread(target=lambda: leases.append(by_acquire(locks.lock("a"))))
        thread.start()
        thread.join()
        where = leases[0][1]
        thread = threading.Thread(target=leases.clear)
        thread.start()
        thread.join()
        eventually(lambda: reports(caplog))
    assert f"{__file__}:{where} in by_acquire" in reports(caplog)[0]


def test_an_acquire_passed_to_a_thread_is_logged_without_a_line(caplog: pytest.LogCaptureFixture) -> None:
    with holdfast.connect(store()) as locks:
        lock = locks.lock("a")
        threading.Thread(target=lock.acquire).start()
        eventually(lambda: len(reports(caplog)) == 1)
        _thread.start_new_thread(lock.acquire, ())
        eventually(lambda: len(reports(caplog)) == 2)
    assert all("passed to a thread or a task" in report for report in reports(caplog))


async def _acquire(lock: Any) -> tuple[Any, int]:
    return await lock.acquire(), line()


async def _enter(lock: Any) -> tuple[Any, int]:
    here = line() + 1
    lease = await lock.__aenter__()
    return lease, here


async def _after_a_wait(lock: Any) -> tuple[Any, int]:
    """The acquire is suspended and resumed by the loop: the awaiting function is its caller all the same."""
    first = await lock.acquire()
    asyncio.get_running_loop().call_later(0.02, lambda: asyncio.ensure_future(first.release()))
    task = asyncio.create_task(_acquire(lock))
    return await task


@pytest.mark.parametrize("acquire", [_acquire, _after_a_wait])
def test_the_line_of_an_async_acquire_is_that_of_the_awaiting_function(
    acquire: Callable[[Any], Any], caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> int:
        async with holdfast.aio.connect(store()) as locks:
            lease, where = await acquire(locks.lock("a"))
            del lease
            gc.collect()
            await until(lambda: reports(caplog))
            return int(where)

    where = asyncio.run(main())
    assert f"{__file__}:{where} in _acquire" in reports(caplog)[0]


def test_an_acquire_in_wait_for_is_logged_with_its_line_or_as_unknown(caplog: pytest.LogCaptureFixture) -> None:
    """Until Python 3.11 it runs the call in a task of its own; then the line that waits is not on the stack."""

    async def main() -> None:
        async with holdfast.aio.connect(store()) as locks:
            await asyncio.wait_for(locks.lock("a").acquire(), 5)
            gc.collect()
            await until(lambda: reports(caplog))

    asyncio.run(main())
    expected = "passed to a thread or a task" if sys.version_info < (3, 12) else " in test_an_acquire_in_wait_for"
    assert expected in reports(caplog)[0]


def test_what_was_released_or_lost_or_closed_is_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    with holdfast.connect(store()) as locks:
        locks.lock("released").acquire().release()
        lost = locks.lock("lost").acquire()
        locks.break_("lost")
        del lost
        closed = locks.lock("closed").acquire()
        forgotten = locks.lock("forgotten").acquire()
        del forgotten
        eventually(lambda: reports(caplog))
    del closed
    gc.collect()
    assert len(reports(caplog)) == 1
    assert "'forgotten'" in reports(caplog)[0]


def test_one_of_two_leases_is_logged_and_the_lock_stays_held(caplog: pytest.LogCaptureFixture) -> None:
    with holdfast.connect(store()) as locks, locks.lock("a") as kept:
        lease = locks.lock("a").acquire()
        del lease
        eventually(lambda: reports(caplog))
        assert kept.held
    assert "with the last of its leases" in reports(caplog)[0]


def test_the_line_in_a_lease_keeps_no_frame_alive() -> None:
    class Local:
        pass

    def acquire(lock: holdfast.Lock) -> tuple[holdfast.Lease, weakref.ref[Local]]:
        local = Local()
        return lock.acquire(), weakref.ref(local)

    with holdfast.connect(store()) as locks:
        lease, local = acquire(locks.lock("a"))
        assert local() is None
        lease.release()


class _Handler(logging.Handler):
    """Keeps its lock while it waits for a lock of holdfast's, as a handler that writes to a shared file might."""

    def __init__(self, locks: holdfast.Client) -> None:
        super().__init__()
        self.locks = locks
        self.seen: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        with self.locks.lock("log file", timeout=5):
            self.seen.append(record.getMessage())


def test_a_handler_that_locks_and_drops_leases_cannot_deadlock() -> None:
    logger = logging.getLogger("holdfast")
    with holdfast.connect(store(), ttl=LASTING) as locks:
        handler = _Handler(locks)
        logger.addHandler(handler)
        try:
            kept = locks.lock("kept").acquire()
            handler.acquire()  # as while another thread is logging
            try:
                lease = locks.lock("a").acquire()
                del lease  # here, where the handler's lock is held
                again = locks.lock("a", reentrant=False).acquire(timeout=5)
                again.release()
                eventually(renewed(kept))  # the watchdog is not waiting for the handler
                assert handler.seen == []
            finally:
                handler.release()
            eventually(lambda: handler.seen)
            kept.release()
        finally:
            logger.removeHandler(handler)


def test_a_lease_dropped_by_the_last_statement_of_a_program_is_logged() -> None:
    code = "import holdfast\nlocks = holdfast.connect('memory:')\nlocks.lock('a').acquire()\n"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=30, check=True)
    assert "acquired at <string>:3 in <module>" in done.stderr


def test_a_program_that_ends_with_a_held_lease_prints_nothing() -> None:
    code = "import holdfast\nlocks = holdfast.connect('memory:')\nlease = locks.lock('a').acquire()\n"
    began = time.monotonic()
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=30, check=True)
    assert done.stderr == ""
    assert time.monotonic() - began < 20
