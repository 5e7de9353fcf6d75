"""A double barrier: members enter together, and leave together.

Its state is one register: the number of the round, whether it is open, and the ids of its members. The swap that adds
the last id opens the round; the one that removes the last begins the next. Callers that come while a round is open wait
for the next one.

Membership is leased: each member holds a permit of a semaphore without a limit, under the barrier's own name. Its id is
the owner of that permit. The watchdog renews it, also between ``enter`` and ``leave``; the permit of a member that dies
ends with its ttl. A member that waits asks the engine, once a second, which owners hold permits (one request for all of
them) and removes the ids of the others. An id is added after its permit was granted, and removed before it is released,
so an id that was read before the question and has no permit in the answer is that of a dead member.

On an engine where barriers are a kind of their own, ``engine_rounds.py`` has what is different: no register, and no
permits.

Here are the rules (pure), the steps that do I/O (written once), and the sync API. ``aio/barrier.py`` has the async API.
"""

from __future__ import annotations

import dataclasses
import secrets
from collections.abc import Callable, Collection
from typing import Any, Final, NamedTuple, Self

from holdfast._config import names
from holdfast._config.durations import Duration, check_timeout
from holdfast._core import operators, releasing
from holdfast._core.core import Core
from holdfast._core.direct_acquire import acquire
from holdfast._runtime.blocking import run
from holdfast.base_client import BaseClient
from holdfast.client import Client
from holdfast.engines.base import Kind, member, permits
from holdfast.engines.registers import RegisterKey
from holdfast.errors import NotHeld, UsageError
from holdfast.lease import BaseLease, Lease, NotPortable
from holdfast.primitives.engine_rounds import EngineRounds
from holdfast.primitives.multi import drop
from holdfast.primitives.shared_state import SharedState, check_registers

PART: Final = "barrier"
#: The largest number of parties: their ids are one value at the engine.
MOST: Final = 1_000
#: How often a waiting member asks which members are alive, in seconds.
_CHECKS_EVERY: Final = 1.0


# -- rules ---------------------------------------------------------------------------------------------------------


class BarrierState(NamedTuple):
    """All that the engine knows about a barrier."""

    made: str  #: tells it from one of the same name whose state was lost
    round: int
    open: bool
    parties: int  #: of this round: its first member decides
    members: tuple[str, ...]

    @classmethod
    def new(cls, made: str) -> Self:
        return cls(made, 0, False, 0, ())

    @classmethod
    def parsed(cls, value: Any) -> Self | None:
        """From JSON; None if it is no state of a barrier."""
        try:
            made, round_, open_, parties, members = value
        except (ValueError, TypeError):
            return None
        if not (isinstance(made, str) and type(round_) is int and isinstance(open_, bool) and type(parties) is int):
            return None
        if not (isinstance(members, list) and all(isinstance(member, str) for member in members)):
            return None
        return cls(made, round_, open_, parties, tuple(members))

    def entered(self, member: str) -> bool:
        """Whether ``member`` is through."""
        return self.open and member in self.members

    def last_is(self, member: str, parties: int) -> bool:
        """Whether the round opens when ``member`` joins."""
        return not self.open and len({*self.members, member}) >= parties

    def joined(self, member: str, parties: int) -> Self:
        """With ``member``, unless the round is open. The last one opens it."""
        if self.open or member in self.members:
            return self
        members = (*self.members, member)
        return self._replace(open=len(members) >= parties, parties=parties, members=members)

    def without(self, gone: Collection[str]) -> Self:
        """Without these members. An open round that is empty is over."""
        members = tuple(member for member in self.members if member not in gone)
        if self.open and not members:
            return self._replace(round=self.round + 1, open=False, parties=0, members=())
        return self._replace(members=members)

    def is_over(self, made: str, round_: int) -> bool:
        """Whether all members of that round have left."""
        return not (self.open and self.made == made and self.round == round_)


# -- steps that do I/O ---------------------------------------------------------------------------------------------


class Membership(NamedTuple):
    """An entered barrier: the lease on the member's permit, and the round."""

    lease: BaseLease
    made: str
    round: int


class BaseBarrier(NotPortable):
    """What sync and async barriers share."""

    def __init__(self, client: BaseClient, name: str, parties: int) -> None:
        self._at_engine = Kind.BARRIER in client._engine.kinds
        if not self._at_engine:
            check_registers(client, "barrier", names.validate(name))
        if not client._engine.guarantees.permits:
            raise UsageError(
                f"barrier {name!r}: {client._engine!r} has no semaphores, by whose permits a barrier knows its live "
                "members; use an engine whose guarantees include 'permits'",
                name=name,
            )
        if type(parties) is not int or not 1 <= parties <= MOST:
            raise UsageError(f"barrier {name!r}: parties is {parties!r}; give a number from 1 to {MOST}", name=name)
        mode = member(parties) if self._at_engine else permits(1, 0)
        policy = client._policy(name, renew=True, reentrant=False, mode=mode)
        self._policy = dataclasses.replace(policy, called="barrier")
        self._parties = parties
        self._key = RegisterKey(self._policy.key, PART)
        self._made = secrets.token_urlsafe(8)
        self._membership: Membership | None = None

    @property
    def name(self) -> str:
        """The barrier's name, without the namespace."""
        return self._policy.name

    @property
    def parties(self) -> int:
        """How many members enter together."""
        return self._parties

    async def _enter(self, core: Core, lease: BaseLease, timeout: float | None) -> bool:
        if self._membership is not None:
            raise UsageError(
                f"barrier {self.name!r} was entered already by this object; each member makes one of its own",
                name=self.name,
            )
        deadline = None if timeout is None else core.front.now() + timeout
        try:
            self._membership = await self._become_member(core, lease, deadline)
            return self._membership is not None
        except BaseException:
            self._abandon(lease)
            raise

    async def _become_member(self, core: Core, lease: BaseLease, deadline: float | None) -> Membership | None:
        """None at ``deadline``."""
        if self._at_engine:
            opened = await EngineRounds(core, self._policy).enter(lease, deadline)
            return None if opened is None else Membership(lease, "", opened)
        await acquire(core, self._policy, None, lease)
        state = await _Entering(self, core, lease).run(deadline)
        if state is not None:
            return Membership(lease, state.made, state.round)
        await releasing.release(core, lease._hold, lease)
        return None

    def _abandon(self, lease: BaseLease) -> None:
        """It was interrupted or refused: the other members see that the permit is gone, and remove its id."""
        if self._membership is not None and self._membership.lease is lease:
            self._membership = None
        drop([lease])

    async def _leave(self, core: Core, timeout: float | None) -> bool:
        membership = self._membership
        if membership is None:
            raise NotHeld(f"barrier {self.name!r} was not entered by this object", name=self.name)
        lease, made, round_ = membership
        if lease._hold.core is not core:
            lease.check()  # raises: this is a forked child, and the member is its parent
        deadline = None if timeout is None else core.front.now() + timeout
        members = None if self._at_engine else _Members(self, core)
        if members is not None:
            await members.remove({lease.owner})
        self._membership = None
        if not lease.released:
            await releasing.release(core, lease._hold, lease)  # LockLost: the others have not waited for this member
        if members is None:
            return await EngineRounds(core, self._policy).until_over(round_, deadline)
        return await members.until(lambda state: state.is_over(made, round_), deadline)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r} of {self._parties} parties>"


class _Members:
    """The state of a barrier, as one caller reads and changes it."""

    def __init__(self, barrier: BaseBarrier, core: Core) -> None:
        self.barrier = barrier
        self.core = core
        self.shared = SharedState(core, barrier.name, barrier._key)
        self._checked = core.front.now()

    def parse(self, value: Any) -> BarrierState:
        if value is None:
            return BarrierState.new(self.barrier._made)
        state = BarrierState.parsed(value)
        if state is None:
            raise self.shared.unreadable()
        return state

    async def read(self) -> BarrierState:
        return self.parse(await self.shared.read())

    async def remove(self, gone: Collection[str]) -> BarrierState:
        def change(value: Any) -> BarrierState | None:
            state = self.parse(value)
            after = state.without(gone)
            return None if after == state else after

        return self.parse(_as_json(await self.shared.change(change)))

    async def dead(self, state: BarrierState) -> set[str]:
        """The members in ``state``, which was read before, that hold no permit any more."""
        holders = (await operators.inspect(self.core, self.barrier.name)).holders
        return set(state.members) - {holder.owner for holder in holders}

    async def drop_dead(self, state: BarrierState) -> BarrierState:
        """Without dead members, if they were not looked for in the last second."""
        now = self.core.front.now()
        if not state.members or now < self._checked + _CHECKS_EVERY:
            return state
        self._checked = now
        dead = await self.dead(state)
        return await self.remove(dead) if dead else state

    async def until(self, condition: Callable[[BarrierState], bool], deadline: float | None) -> bool:
        """Wait until ``condition(state)`` is true; False at ``deadline``. Dead members are removed meanwhile."""
        listener = self.shared.listener()
        try:
            await self.shared.arm(listener)
            while True:
                if condition(await self.drop_dead(await self.read())):
                    return True
                if not await self.shared.sleep(listener, deadline):
                    return False
        finally:
            listener.close()


class _Entering(_Members):
    """One caller that enters, with a lease on its permit."""

    def __init__(self, barrier: BaseBarrier, core: Core, lease: BaseLease) -> None:
        super().__init__(barrier, core)
        self._lease = lease
        self._member = lease.owner
        self._entered: BarrierState | None = None

    async def run(self, deadline: float | None) -> BarrierState | None:
        """The state of the open round of which it is a member; None at ``deadline``."""
        listener = self.shared.listener()
        try:
            await self.shared.arm(listener)
            while True:
                state = await self._join()
                if state.entered(self._member):
                    return state
                if not await self.shared.sleep(listener, deadline):
                    # Decided by the swap: the round may have been opened with it at this moment.
                    state = await self._give_up()
                    return state if state.entered(self._member) else None
        finally:
            listener.close()

    async def _join(self) -> BarrierState:
        self._lease.check()
        state = await self.drop_dead(await self.read())
        if state.last_is(self._member, self.barrier.parties) and (dead := await self.dead(state)):
            await self.remove(dead)  # it must not be opened with members that are gone
        return self.parse(_as_json(await self.shared.change(self._joined)))

    def _joined(self, value: Any) -> BarrierState | None:
        state = self.parse(value)
        if state.members and not state.open and state.parties != self.barrier.parties:
            raise UsageError(
                f"barrier {self.barrier.name!r} has {state.parties} parties in this round, and not "
                f"{self.barrier.parties}: all members must agree",
                name=self.barrier.name,
            )
        after = state.joined(self._member, self.barrier.parties)
        return None if after == state else after

    async def _give_up(self) -> BarrierState:
        def change(value: Any) -> BarrierState | None:
            state = self.parse(value)
            if state.entered(self._member) or self._member not in state.members:
                return None
            return state.without({self._member})

        return self.parse(_as_json(await self.shared.change(change)))


def _as_json(value: Any) -> Any:
    """A state that was just written, in the form in which it would be read."""
    return [*value[:-1], list(value.members)] if isinstance(value, BarrierState) else value


class Barrier(BaseBarrier):
    """One member of a double barrier: each thread or process that takes part makes its own. No I/O when it is made."""

    def __init__(self, client: Client, name: str, parties: int) -> None:
        super().__init__(client, name, parties)
        self._client = client

    def enter(self, timeout: Duration | None = None) -> bool:
        """Wait until all parties have entered: True; False after ``timeout`` seconds, and it is no member then.

        A caller that comes while a round is open waits for the next. Raises LockLost if the membership was lost while
        it waited, UsageError if it has entered already or the members do not agree about their number.
        """
        lease = Lease()
        try:
            return run(self._enter(self._client._open(), lease, check_timeout(timeout)))
        except BaseException:
            self._abandon(lease)
            raise

    def leave(self, timeout: Duration | None = None) -> bool:
        """Leave, and wait until all members of the round have left or are dead: True; False after ``timeout`` seconds.

        It has left in either case. Raises LockLost if the membership was lost before (the others may have left without
        it), NotHeld if it has not entered.
        """
        return run(self._leave(self._client._open(), check_timeout(timeout)))
