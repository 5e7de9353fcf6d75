"""One signal at every place of a call that takes back what was handed over to a waiter, of the release that hands it
over, and of a wait that was overtaken: it may delay other callers, but never block them, and nothing stays held."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable

import pytest

import holdfast
from holdfast._core import local_queue
from holdfast._core.local_turn import LocalTurn
from holdfast._runtime.base import Event
from tests.support.overtaking import SOON, Contention
from tests.support.signal_injector import HandlerInjector, InjectedInterrupt, SignalInjector
from tests.support.waiting import eventually

pytestmark = pytest.mark.usefixtures("no_warnings_of_dropped_objects")


@pytest.fixture(autouse=True)
def _tracing_takes_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_queue, "MAX_CHAIN_SECONDS", 30.0)


class Overtaken(Contention):
    """Waiters that are woken but do not run before ``go``."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__()
        self._threads: list[threading.Thread] = []
        self.go = threading.Event()
        self.served = threading.Semaphore(0)
        self._frozen: set[int] = set()
        until_turn = LocalTurn._until_turn

        async def freezing(turn: LocalTurn, event: Event) -> None:
            await until_turn(turn, event)
            if threading.get_ident() in self._frozen:
                self.go.wait(SOON)

        monkeypatch.setattr(LocalTurn, "_until_turn", freezing)

    def hold(self, waiters: int = 2) -> holdfast.Lease:
        """By the calling thread."""
        lease, self._threads = self.hold_while_others_wait(*[self._wait] * waiters)
        return lease

    def _wait(self) -> None:
        self._frozen.add(threading.get_ident())
        with self.lock:
            self.served.release()

    def check(self, place: object) -> None:
        """Both are served; then every caller can have the lock, of this client and of another."""
        self.go.set()
        for _ in self._threads:
            assert self.served.acquire(timeout=SOON), f"a waiter was left waiting by a signal at {place}"
        again = self.lock.try_acquire(timeout=SOON)
        assert again is not None, f"this caller is locked out by a signal at {place}"
        again.release()
        elsewhere = self.other.lock("a").try_acquire(timeout=SOON)
        assert elsewhere is not None, f"left held by a signal at {place}"
        elsewhere.release()
        assert self.core.queue.waiting("a") == 0
        eventually(lambda: not self.core.queue.occupants)
        assert not self.core.queue.offers


def interrupted(injector: SignalInjector, call: Callable[[], object]) -> None:
    try:
        with injector:
            call()
    except (InjectedInterrupt, holdfast.AcquireTimeout):
        gc.collect(0)


def everywhere(scenario: Callable[[int], SignalInjector]) -> int:
    """Run it with a signal at its first place, its second, …, until it runs without one. Returns the number."""
    number = 0
    while scenario(number).interrupted_at:
        number += 1
    return number


def test_interrupted_acquire_that_overtakes_blocks_no_caller(monkeypatch: pytest.MonkeyPatch) -> None:
    def scenario(number: int) -> SignalInjector:
        injector = SignalInjector(number)
        with monkeypatch.context() as patch, Overtaken(patch) as contention:
            contention.hold().release()
            assert contention.core.queue.offers
            interrupted(injector, lambda: contention.lock.acquire(timeout=0).release())
            contention.check(injector.interrupted_at)
        return injector

    assert everywhere(scenario) > 60


def test_interrupted_release_that_hands_over_blocks_no_caller(monkeypatch: pytest.MonkeyPatch) -> None:
    def scenario(number: int) -> SignalInjector:
        injector = SignalInjector(number)
        with monkeypatch.context() as patch, Overtaken(patch) as contention:
            lease = contention.hold()
            interrupted(injector, lease.release)
            del lease
            contention.check(injector.interrupted_at)
        return injector

    assert everywhere(scenario) > 20


@pytest.mark.parametrize("then", ["returns it", "keeps it", "waits for it"])
@pytest.mark.parametrize("what", ["acquire", "release"])
def test_signal_handler_that_overtakes_blocks_no_caller(monkeypatch: pytest.MonkeyPatch, what: str, then: str) -> None:
    """The handler runs between two instructions of a call that overtakes or hands over, on the same thread. It may take
    the lock, and keep it for longer than the call takes; or be the only one in the queue for a while."""
    holders: list[int] = []

    def scenario(number: int) -> SignalInjector:
        kept: list[holdfast.Lease] = []

        def use() -> None:
            lease = contention.lock.try_acquire(timeout=0.003 if then == "waits for it" else 0)
            if lease is not None and then == "keeps it":
                kept.append(lease)
            elif lease is not None:
                lease.release()

        injector = HandlerInjector(number, use)
        with monkeypatch.context() as patch, Overtaken(patch) as contention:
            first = contention.hold(waiters=1 if then == "waits for it" else 2)
            mine: list[holdfast.Lease] = []
            if what == "release":
                interrupted(injector, first.release)
            else:
                first.release()
                interrupted(injector, lambda: mine.append(contention.lock.acquire(timeout=0.01)))
            held = {lease.token for lease in (*kept, *mine) if lease.held}
            assert len(held) <= 1, f"two holders after a signal at {injector.interrupted_at}"
            holders.append(len(held))
            for lease in (*kept, *mine):
                lease.release()
            del first
            contention.check(injector.interrupted_at)
        return injector

    assert everywhere(scenario) > 20
    assert what == "release" or sum(holders) > len(holders) / 2, "the run is conclusive"


def test_signal_handler_that_overtakes_another_waiter_than_its_own_caller_blocks_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The caller gives up waiting, as the last one in the queue. Meanwhile the handler puts the head back there."""
    overtook: list[bool] = []

    def scenario(number: int) -> SignalInjector:
        kept: list[holdfast.Lease] = []
        queued, gave_up = threading.Event(), threading.Event()

        def use() -> None:
            lease = contention.lock.try_acquire()
            if lease is not None:
                kept.append(lease)

        def hold() -> None:
            lease = contention.hold(waiters=1)
            queued.set()
            # After a scheduler stall the caller may have left already. Then this run shows nothing.
            eventually(lambda: contention.core.queue.waiting("a") == 2 or gave_up.is_set())
            lease.release()

        injector = HandlerInjector(number, use)
        with monkeypatch.context() as patch, Overtaken(patch) as contention:
            thread = threading.Thread(target=hold, daemon=True)
            thread.start()
            assert queued.wait(SOON)
            interrupted(injector, lambda: contention.lock.acquire(timeout=0.02))
            gave_up.set()
            thread.join(SOON)
            overtook.append(bool(kept))
            for lease in kept:
                lease.release()
            contention.check(injector.interrupted_at)
        return injector

    assert everywhere(scenario) > 60
    assert any(overtook), "the run is conclusive"


def test_interrupted_wait_that_is_overtaken_blocks_no_caller() -> None:
    """The signal comes to the waiter, anywhere: before its turn, when that was taken back, or when it accepts it."""

    def scenario(number: int) -> SignalInjector:
        injector, ready = SignalInjector(number), threading.Event()
        with Contention() as contention:

            def hold() -> None:
                with contention.lock:
                    ready.set()
                    contention.queued(2)

            def taking_turns() -> None:
                lease = contention.lock.acquire(timeout=SOON)
                for _ in range(2):
                    with contention.core.lock:
                        lease.release()
                        lease = contention.lock.acquire(timeout=SOON)
                lease.release()

            threads = [threading.Thread(target=target, daemon=True) for target in (hold, taking_turns)]
            threads[0].start()
            assert ready.wait(SOON)
            threads[1].start()
            contention.queued(1)
            interrupted(injector, lambda: contention.lock.acquire(timeout=SOON).release())
            if injector.interrupted_at:  # in its place, so that the others go on
                contention.lock.acquire(timeout=SOON).release()
            for thread in threads:
                thread.join(SOON)
                assert not thread.is_alive(), f"blocked by a signal at {injector.interrupted_at}"
            elsewhere = contention.other.lock("a").try_acquire(timeout=SOON)
            assert elsewhere is not None, f"left held by a signal at {injector.interrupted_at}"
            elsewhere.release()
            assert contention.core.queue.waiting("a") == 0
        return injector

    assert everywhere(scenario) > 60
