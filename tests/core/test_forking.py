"""Forks while another thread holds an internal lock of holdfast, which no thread of the child will release."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager

import pytest

import holdfast
from tests.support.forking import in_a_child

pytestmark = pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")


@contextmanager
def held_by_another_thread(lock: AbstractContextManager[bool]) -> Iterator[None]:
    """Another thread holds ``lock`` during the body."""
    taken, over = threading.Event(), threading.Event()

    def hold() -> None:
        with lock:
            taken.set()
            over.wait(10)

    thread = threading.Thread(target=hold)
    thread.start()
    taken.wait(10)
    try:
        yield
    finally:
        over.set()
        thread.join()


def use(client: holdfast.Client) -> bool:
    with client.lock("a") as lease:
        return lease.held


def test_a_child_forked_while_another_thread_opens_the_client_can_lock() -> None:
    with holdfast.connect("memory:") as client, held_by_another_thread(client._opening):
        assert in_a_child(lambda: use(client))


def test_a_child_forked_while_another_thread_is_in_the_core_can_lock() -> None:
    with holdfast.connect("memory:") as client:
        assert use(client)
        core = client._opened
        assert core is not None
        with held_by_another_thread(core.lock):
            assert in_a_child(lambda: use(client))


def test_a_child_forked_inside_a_block_has_lost_the_lease_that_the_parent_keeps() -> None:
    """The child leaves the block too: it gets LockLost, and the parent keeps its lock."""
    with holdfast.connect("memory:") as client:
        lock = client.lock("a")
        with ExitStack() as blocks:
            lease = blocks.enter_context(lock)

            def leave() -> bool:
                with pytest.raises(holdfast.LockLost, match="forked"):
                    blocks.close()
                return lease.lost_reason == "forked" and not lease.held

            assert in_a_child(leave)
            assert lease.held


def test_a_client_closed_in_the_child_is_open_in_the_parent() -> None:
    with holdfast.connect("memory:") as client, client.lock("a") as lease:

        def close() -> bool:
            client.close()
            with pytest.raises(holdfast.UsageError):
                client.ping()
            return True

        assert in_a_child(close)
        assert lease.held
        client.ping()


def test_a_child_describes_itself_and_not_its_parent() -> None:
    with holdfast.connect("memory:", label="family") as client:
        use(client)

        def describes_itself() -> bool:
            with client.lock("a") as lease:
                (holder,) = client.inspect("a").holders
                return (holder.pid, holder.label, holder.token) == (os.getpid(), "family", lease.token)

        assert in_a_child(describes_itself)
        assert describes_itself()
