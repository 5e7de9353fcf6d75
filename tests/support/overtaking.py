"""Callers of one client that overtake each other, at chosen moments."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable
from typing import Self

import holdfast
from holdfast._core.core import Core
from tests.support.waiting import eventually

#: For what must not take long, also if only the watchdog's check of the slots wakes it.
SOON = 10.0


class Contention:
    """One name of one client, and another client at the same store."""

    def __init__(self) -> None:
        store = f"memory:{uuid.uuid4().hex}"
        self.client, self.other = holdfast.connect(store), holdfast.connect(store)
        self.client.ping()
        self.lock = self.client.lock("a")

    @property
    def core(self) -> Core:
        assert self.client._opened is not None
        return self.client._opened

    def queued(self, number: int) -> None:
        """Return when so many callers are in the queue."""
        eventually(lambda: self.core.queue.waiting("a") == number)

    def hold_while_others_wait(self, *waiters: Callable[[], object]) -> tuple[holdfast.Lease, list[threading.Thread]]:
        """A lease of the calling thread that can be handed over: the engine was asked while ``waiters`` were queued,
        each of which is called in a thread of its own."""
        held, threads = threading.Event(), [threading.Thread(target=waiter, daemon=True) for waiter in waiters]

        def hold() -> None:
            with self.lock:
                held.set()
                self.queued(1)
                for number, thread in enumerate(threads):
                    thread.start()
                    self.queued(2 + number)

        threading.Thread(target=hold, daemon=True).start()
        assert held.wait(SOON)
        return self.lock.acquire(timeout=SOON), threads

    def close(self) -> None:
        self.client.close()
        self.other.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()
