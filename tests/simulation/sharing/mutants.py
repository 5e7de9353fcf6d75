"""Deliberate bugs in read-write locks and semaphores."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Final
from unittest import mock

from holdfast._core.core import Core
from holdfast._core.grant import Grant
from holdfast._core.states import State
from tests.simulation.mutants import Mutant, register, rewrite
from tests.simulation.world.base import BaseWorld

SHARING_MUTANTS: Final[dict[str, Mutant]] = {}

_mutant = partial(register, among=SHARING_MUTANTS)


@_mutant
def readers_overtake_a_writer(world: BaseWorld) -> Iterator[None]:
    """Readers enter beside readers although a writer waits: it starves."""
    rewrite(world, "rw_acquire", r"if reading and not \(ours or nested\) then", "if reading then elseif false then")
    yield


@_mutant
def zombie_write(world: BaseWorld) -> Iterator[None]:
    """A write that has ended by its deadline is not withdrawn, and the renewals of a nested read keep it alive."""
    withdraw_grant = Core.withdraw_grant

    def keep_lost(self: Core, grant: Grant) -> None:
        if grant.hold is None or grant.hold.state is not State.LOST:
            withdraw_grant(self, grant)

    with mock.patch.object(Core, "withdraw_grant", keep_lost):
        yield


@_mutant
def half_permits(world: BaseWorld) -> Iterator[None]:
    """A claim takes what is free and waits for the rest."""
    take_some = """if free > 0 and free < wanted then
        for i = 1, free do call('ZADD', out, string.format('%.0f', expires), ids[i]) end
        write_free(KEYS[1], 0, out, keep)
        return -1
    end
    local waits = free < wanted"""
    rewrite(world, "permits_acquire", r"local waits = free < wanted", take_some)
    yield


@_mutant
def large_claim_starves(world: BaseWorld) -> Iterator[None]:
    """A claim that finds enough permits takes them, also before one that waits for more."""
    rewrite(world, "permits_acquire", r"if awaited and not waits then", "if false then")
    yield


@_mutant
def impossible_claim_waits(world: BaseWorld) -> Iterator[None]:
    """After a shrink the head of the queue waits for more permits than there are, and all others behind it."""
    rewrite(world, "permits_acquire", "if wanted > size then", "if false then")
    yield


@_mutant
def one_wakeup_for_two_places(world: BaseWorld) -> Iterator[None]:
    """The waiter that is served does not wake the next, for whom there is room, too."""
    rewrite(world, "permits_acquire", r"if wake_next and limited then wake_next\(free - wanted\) end", "")
    yield


@_mutant
def evicted_count_is_made_anew(world: BaseWorld) -> Iterator[None]:
    """The number of free permits was evicted: it is made from the size, whatever is out."""
    rewrite(world, "permits_acquire", r"ARGV\[4\] - held", "tonumber(ARGV[4])")
    yield


@_mutant
def no_tombstone(world: BaseWorld) -> Iterator[None]:
    """A late duplicate of an acquire takes effect after its claim was given up."""
    for script in ("rw_acquire", "permits_acquire"):
        rewrite(world, script, "':gone:'", "':nowhere:'")
    yield


@_mutant
def release_without_owner_check(world: BaseWorld) -> Iterator[None]:
    """A late release of a read-write lock removes another owner's hold."""
    rewrite(world, "rw_release", r"redis\.pcall\('HEXISTS', lock, field\) ~= 1", "redis.call('EXISTS', lock) ~= 1")
    yield


@_mutant
def release_counts_what_was_not_out(world: BaseWorld) -> Iterator[None]:
    """A repeated release of permits makes new ones."""
    rewrite(world, "permits_release", r"returned = returned \+ removed", "returned = tonumber(ARGV[3])")
    yield
