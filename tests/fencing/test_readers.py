"""Leases of read locks and of semaphores at a fence."""

from __future__ import annotations

import pytest

import holdfast
from holdfast.fencing import Fence
from holdfast.fencing.http import header


def test_reader_passes_until_a_newer_write_was_seen_and_is_not_stored(fence: Fence) -> None:
    with holdfast.connect("memory:readers") as locks:
        rwlock = locks.rwlock("orders")
        with rwlock.write as first:
            fence.check("orders", first)
        with rwlock.read as reader, fence.guard("orders", reader):
            assert reader.token == first.token
        fence.check("orders", first)  # the reader, another owner of the same token, was not stored
        with rwlock.write as second:
            fence.check("orders", reader)  # the fence has not seen the newer token yet
            fence.check("orders", second)
        with pytest.raises(holdfast.StaleToken) as refused:
            fence.check("orders", reader)
        assert (refused.value.token, refused.value.seen) == (reader.token, second.token)
        with rwlock.read as late:
            fence.check("orders", late)
        fence.check("orders", second)


def test_first_token_of_a_resource_is_that_of_a_writer(fence: Fence) -> None:
    with holdfast.connect("memory:readers") as locks:
        rwlock = locks.rwlock("new")
        with rwlock.read as reader:
            fence.check("new", reader)
        fence.check("new", 1, "an older owner")  # nothing was stored


def test_reader_inside_a_write_and_after_a_downgrade_passes(fence: Fence) -> None:
    with holdfast.connect("memory:readers") as locks:
        rwlock = locks.rwlock("orders")
        with rwlock.write as writer:
            fence.check("orders", writer)
            reader = rwlock.read.acquire()
            fence.check("orders", reader)
            fence.check("orders", writer)
        fence.check("orders", reader)
        assert (reader.mode, writer.mode) == ("read", "write")
        reader.release()


def test_lease_of_a_semaphore_is_refused(fence: Fence) -> None:
    with holdfast.connect("memory:readers") as locks, locks.semaphore("workers", 2) as permit:
        assert permit.mode == "permits"
        with pytest.raises(holdfast.UsageError, match="semaphore"):
            fence.check("orders", permit)
        with pytest.raises(holdfast.UsageError, match="semaphore"):
            fence.guard("orders", permit)
        with pytest.raises(holdfast.UsageError, match="semaphore"):
            header("orders", permit)
