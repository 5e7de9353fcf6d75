"""The registers of the memory engine: guards, versions, presence and wake-ups."""

from __future__ import annotations

import gc
import sys
import threading

import pytest

from holdfast._runtime.blocking import BLOCKING, run
from holdfast.engines.memory.registers import MemoryRegisters
from holdfast.engines.memory.store import Store
from holdfast.engines.registers import PRESENCE, Cell, Guard, Look, RegisterKey, Stale, Standing

KEY = RegisterKey("orders", "condition:")
FIRST, SECOND = Guard(1, "a"), Guard(2, "b")


@pytest.fixture
def registers() -> MemoryRegisters:
    return MemoryRegisters(Store(), BLOCKING)


def load(registers: MemoryRegisters, guard: Guard) -> Cell:
    cell = run(registers.load(KEY, guard, 1.0))
    assert isinstance(cell, Cell)
    return cell


def test_a_register_that_was_never_written_is_empty(registers: MemoryRegisters) -> None:
    assert load(registers, FIRST) == Cell() == run(registers.peek(KEY, 1.0))


def test_a_later_load_shuts_out_an_earlier_holder(registers: MemoryRegisters) -> None:
    load(registers, FIRST)
    load(registers, SECOND)
    assert run(registers.store(KEY, FIRST, 0, 1.0, value=b"late")) == Stale(2, 0)
    assert run(registers.load(KEY, FIRST, 1.0)) == Stale(2, 0)
    assert run(registers.load(KEY, Guard(2, "c"), 1.0)) == Stale(2, 0)
    assert run(registers.store(KEY, SECOND, 0, 1.0, value=b"new")) == 1
    assert run(registers.peek(KEY, 1.0)).value == b"new"


def test_a_listener_that_is_closed_while_it_is_woken_ends_quietly(
    registers: MemoryRegisters, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Regression: "Exception ignored in … KeyError" on stderr, now and then, of a barrier or latch."""
    ignored = list[object]()
    monkeypatch.setattr(sys, "unraisablehook", ignored.append)
    listener = registers.listener(KEY, None)
    run(listener.arm())
    being_woken = list(registers.register((KEY.name, KEY.part)).waiters.watching)
    listener.close()
    del listener
    gc.collect()
    assert [reference() for reference in being_woken] == [None]
    assert not ignored


def test_a_store_without_a_load_is_refused(registers: MemoryRegisters) -> None:
    assert isinstance(run(registers.store(KEY, FIRST, 0, 1.0, value=b"x")), Stale)


def test_a_late_duplicate_of_a_store_is_refused_by_its_version(registers: MemoryRegisters) -> None:
    load(registers, FIRST)
    assert run(registers.store(KEY, FIRST, 0, 1.0, value=b"1")) == 1
    assert run(registers.store(KEY, FIRST, 0, 1.0, value=b"1")) == Stale(1, 1)
    assert run(registers.store(KEY, FIRST, 1, 1.0, queue="=w:W")) == 2
    assert load(registers, FIRST) == Cell(b"1", "=w:W", 2)


def test_who_has_looked_is_present_for_a_while(registers: MemoryRegisters, monkeypatch: pytest.MonkeyPatch) -> None:
    load(registers, FIRST)
    run(registers.store(KEY, FIRST, 0, 1.0, queue="=v:W,w:W", join="w"))
    assert load(registers, FIRST).present == {"w"}
    assert run(registers.look(KEY, "w", 1.0)) == Look(Standing.WAITING, 0)
    run(registers.look(KEY, "v", 1.0))
    assert run(registers.look(KEY, "w", 1.0)) == Look(Standing.WAITING, 1)
    now = BLOCKING.now()
    monkeypatch.setattr(registers, "runtime", _Clock(now + PRESENCE + 1))
    assert load(registers, FIRST).present == frozenset()


class _Clock:
    def __init__(self, now: float) -> None:
        self.now = lambda: now


def test_swaps_compare_the_version_and_wake_who_listens_to_all_changes(registers: MemoryRegisters) -> None:
    listener = registers.listener(KEY, None)
    run(listener.arm())
    assert run(registers.swap(KEY, 0, b"1", 1.0)) == Cell(b"1", "", 1)
    run(listener.wait(BLOCKING.now() + 60))
    assert run(registers.swap(KEY, 0, b"2", 1.0)) == Cell(b"1", "", 1)
    listener.close()


def test_a_store_wakes_the_waiters_that_it_names(registers: MemoryRegisters) -> None:
    load(registers, FIRST)
    listener, other = registers.listener(KEY, "w"), registers.listener(KEY, "v")
    run(listener.arm())
    run(other.arm())
    woken = threading.Thread(target=lambda: run(listener.wait(BLOCKING.now() + 60)))
    woken.start()
    run(registers.store(KEY, FIRST, 0, 1.0, wake=["w"]))
    woken.join(30)
    assert not woken.is_alive()
    before = BLOCKING.now()
    run(other.wait(before + 0.01))
    assert BLOCKING.now() >= before + 0.01


def test_a_listener_that_is_garbage_is_forgotten(registers: MemoryRegisters) -> None:
    listener = registers.listener(KEY, None)
    run(listener.arm())
    del listener
    gc.collect()
    assert not registers.register(("orders", "condition:")).waiters.watching


def test_waiters_that_have_left_the_queue_are_not_remembered(registers: MemoryRegisters) -> None:
    """Regression: each was remembered for 35 seconds, and every load went through all of them."""
    cell = load(registers, FIRST)
    for number in range(100):
        queue = f"full=w{number}:W,other:W"
        assert run(registers.store(KEY, FIRST, cell.version, 1.0, queue=queue, join=f"w{number}")) == cell.version + 1
        run(registers.look(KEY, "other", 1.0))
        cell = load(registers, FIRST)
        assert cell.present == {f"w{number}", "other"}
    assert len(registers.register((KEY.name, KEY.part)).waiters.looked) == 2
