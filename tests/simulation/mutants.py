"""Deliberate bugs. A simulation that does not find them would not find real bugs either.

Each mutant patches one world from outside: shipped code has no switch for it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import Any, Final
from unittest import mock

from holdfast._core import direct_acquire, installing
from holdfast._core.core import Core
from holdfast._core.direct_hold import DirectHold
from holdfast._core.grant import DirectGrant, Grant
from holdfast._core.policy import Policy
from holdfast.engines.base import Attempt
from holdfast.engines.redis.scripts import Script
from tests.simulation.checkers.register import Guard, Register
from tests.simulation.client.channel import SimWatch
from tests.simulation.world.base import BaseWorld

Mutant = Callable[[BaseWorld], AbstractContextManager[None]]
MUTANTS: Final[dict[str, Mutant]] = {}


def register(break_world: Callable[[BaseWorld], Iterator[None]], among: dict[str, Mutant]) -> Mutant:
    """Registers ``break_world`` by its name."""
    mutant = contextmanager(break_world)
    among[break_world.__name__.replace("_", "-")] = mutant
    return mutant


_mutant = partial(register, among=MUTANTS)


def no_mutant(world: BaseWorld) -> AbstractContextManager[None]:
    """Patches nothing."""
    return nullcontext()


def _admit(self: Register, name: str, guard: Guard) -> bool:
    return True


#: Which scripts do what another one does, too.
_INCLUDED_IN: Final = {"load": ("acquire_load",), "store": ("store_release",)}


def rewrite(world: BaseWorld, name: str, old: str, new: str, *, places: int = 1) -> None:
    """Makes the servers run another text for a shipped script. ``old`` is a pattern that occurs in so many places."""

    def other_text(name: str, script: Script) -> Script:
        source, count = re.subn(old, new, script.source)
        if count != places:
            raise LookupError(f"{name}.lua has changed: this mutant finds {old!r} in {count} places")
        return Script(name, source)

    for node in world.nodes:
        for each in (name, *_INCLUDED_IN.get(name, ())):
            node.network.rewrites[each] = partial(other_text, each)


@_mutant
def deadline_from_the_reply(world: BaseWorld) -> Iterator[None]:
    """The deadline counts from the answer, although the engine's lease began when the request arrived."""
    begin, confirm = Grant.__init__, Grant.confirm

    def now() -> float:
        task = world.simulator.current
        assert task is not None
        return task.process.now()

    def late_begin(self: Grant, attempt: Attempt, policy: Policy, sent: float, *rest: Any) -> None:
        begin(self, attempt, policy, now(), *rest)

    def late_confirm(self: Grant, sent: float, ttl: float) -> None:
        confirm(self, now(), ttl)

    begin_directly = installing.install_directly

    def late_direct_begin(core: Core, hold: DirectHold, *rest: Any) -> bool:
        hold.sent = now()
        hold._valid_until = hold.sent + hold.policy.valid_for
        return begin_directly(core, hold, *rest)

    with (
        mock.patch.object(Grant, "__init__", late_begin),
        mock.patch.object(direct_acquire, "install_directly", late_direct_begin),
        mock.patch.object(Grant, "confirm", late_confirm),
    ):
        yield


@_mutant
def no_margin(world: BaseWorld) -> Iterator[None]:
    """The deadline is the exact end of the lease, although clocks differ in rate."""
    begin, confirm = Grant.__init__, Grant.confirm

    def long_begin(self: Grant, attempt: Attempt, policy: Policy, sent: float, *rest: Any) -> None:
        begin(self, attempt, policy, sent, *rest)
        self.deadline = sent + attempt.claim.ttl

    def long_confirm(self: Grant, sent: float, ttl: float) -> None:
        confirm(self, sent, ttl)
        self.deadline = max(self.deadline, sent + ttl)

    begin_directly = DirectGrant.__init__

    def long_direct_begin(self: DirectGrant, policy: Policy, sent: float, *rest: Any) -> None:
        begin_directly(self, policy, sent, *rest)
        self.deadline = sent + policy.ttl

    install = installing.install_directly

    def long_install(core: Core, hold: DirectHold, *rest: Any) -> bool:
        hold._valid_until = hold.sent + hold.policy.ttl
        return install(core, hold, *rest)

    with (
        mock.patch.object(Grant, "__init__", long_begin),
        mock.patch.object(DirectGrant, "__init__", long_direct_begin),
        mock.patch.object(direct_acquire, "install_directly", long_install),
        mock.patch.object(Grant, "confirm", long_confirm),
    ):
        yield


@_mutant
def release_without_owner_check(world: BaseWorld) -> Iterator[None]:
    """A late release removes the next owner's lock."""
    rewrite(world, "release", r"local held = try\('HDEL', lock, owner\)", "local held = try('DEL', lock)")
    yield


@_mutant
def no_tombstone(world: BaseWorld) -> Iterator[None]:
    """A late duplicate of an acquire takes effect after its claim was given up."""
    rewrite(world, "acquire", "':gone:'", "':nowhere:'")
    rewrite(world, "acquire_free", "':gone:'", "':nowhere:'")
    yield


@_mutant
def acquire_not_idempotent(world: BaseWorld) -> Iterator[None]:
    """A repeated acquire does not recognise its own lock and is refused."""
    rewrite(world, "acquire", r"if \S*call\('HEXISTS', lock, owner\) == 0 then", "do")
    yield


@_mutant
def slots_are_not_repaired(world: BaseWorld) -> Iterator[None]:
    """A signal ends a caller before it has vacated its slot or woken the next waiter, and nothing repairs that."""
    with (
        mock.patch.object(Core, "repair_slot", return_value=None),
        mock.patch.object(Core, "repair_slots", return_value=False),
    ):
        yield


@_mutant
def nothing_is_withdrawn(world: BaseWorld) -> Iterator[None]:
    """The lock of a cancelled or failed acquire stays on the server."""
    with mock.patch.object(Core, "withdraw"):
        yield


@_mutant
def renew_without_owner_check(world: BaseWorld) -> Iterator[None]:
    """A holder that lost its lock continues to renew, and counts the lock of another owner as its own."""
    rewrite(world, "renew", r"pcall\('HEXISTS', (\S+), [^)]*\)", r"pcall('EXISTS', \1)")
    yield


@_mutant
def renew_recreates(world: BaseWorld) -> Iterator[None]:
    """A renewal recreates a lock that was gone."""
    create = r"if redis.call('EXISTS', \2) == 0 then redis.call('HSET', \2, \3, '1') end\n    \1"
    rewrite(world, "renew", r"(local \w+ = \S*pcall\('HEXISTS', (\S+), ([^)]*)\))", create)
    yield


@_mutant
def token_without_time(world: BaseWorld) -> Iterator[None]:
    """A plain counter: after FLUSHALL it begins again below earlier tokens."""
    counted = "do return string.format('%.0f', redis.call('INCRBY', key, tokens)), '1.000000', 0 end"
    for name in ("acquire", "acquire_or_join", "release"):
        rewrite(world, name, r"(local function next_token\(key, tokens, keep\))", rf"\1 {counted}")
    rewrite(world, "acquire_free", r"local time = call\('TIME'\)", "do return -3 end local time")
    yield


@_mutant
def wake_without_re_poll(world: BaseWorld) -> Iterator[None]:
    """A waiter relies on pushes alone and does not wake up when one is lost."""

    async def pushed(self: SimWatch, until: float) -> bool:
        return await self._wakeup.wait(None)

    with mock.patch.object(SimWatch, "pushed", pushed):
        yield


@_mutant
def break_ignores_the_token(world: BaseWorld) -> Iterator[None]:
    """An operator breaks a holder that is gone and removes the next holder."""
    rewrite(world, "break", r"ARGV\[4\] ~= ''", "false")
    yield


@_mutant
def store_only_guard(world: BaseWorld) -> Iterator[None]:
    """The fence checks only stores: a stale holder writes between the new holder's load and its store."""

    def admit_store(self: Register, name: str, guard: Guard) -> bool:
        admitted = self._newest(name, guard)
        if admitted:
            self._guards[name] = guard
        return admitted

    with (
        mock.patch.object(Register, "admit_load", _admit),
        mock.patch.object(Register, "admit_store", admit_store),
    ):
        yield


@_mutant
def no_fence(world: BaseWorld) -> Iterator[None]:
    """The register accepts every write, including the late write of a frozen holder."""
    with (
        mock.patch.object(Register, "admit_load", _admit),
        mock.patch.object(Register, "admit_store", _admit),
    ):
        yield
