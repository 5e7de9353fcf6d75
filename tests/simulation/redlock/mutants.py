"""Deliberate bugs in Redlock: each violates one sentence of rule 7."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, Final
from unittest import mock

from holdfast.engines.base import Found
from holdfast.engines.redis.attempt import RedlockAttempt
from holdfast.engines.redis.dialect.replies import Answer
from holdfast.engines.redis.dialect.requests import Call
from holdfast.engines.redis.redlock import quorum
from holdfast.engines.redis.redlock.session import RedlockSession
from tests.simulation.client.channel import SimChannel
from tests.simulation.mutants import MUTANTS, Mutant, register, rewrite
from tests.simulation.world.base import BaseWorld

#: Mutants of the world with one server that also apply to several servers.
REDLOCK_MUTANTS: Final[dict[str, Mutant]] = {name: MUTANTS[name] for name in ("deadline-from-the-reply", "no-fence")}

_mutant = partial(register, among=REDLOCK_MUTANTS)
_Session = RedlockSession[SimChannel]


@_mutant
def no_phase_2(world: BaseWorld) -> Iterator[None]:
    """The largest token is used without raising the others to it."""

    async def agree(self: _Session, *args: Any) -> bool:
        return True

    with mock.patch.object(RedlockSession, "_agree", agree):
        yield


@_mutant
def plain_incr(world: BaseWorld) -> Iterator[None]:
    """Each server counts alone: a server that has lost its counter begins again below the others."""
    rewrite(world, "acquire", r"proposal == '0' and now or tonumber\(proposal\)", "1", places=3)

    async def vote(self: _Session, attempt: RedlockAttempt, light: Call, proposal: int, timeout: float) -> list[Answer]:
        return await self._servers.ask(self._acquire_call(attempt, proposal), timeout)

    with mock.patch.object(RedlockSession, "_vote_lightly", vote):  # that script has no counter of its own
        yield


@_mutant
def no_take_back(world: BaseWorld) -> Iterator[None]:
    """Grants without a majority are not withdrawn."""

    async def take_back(self: _Session, attempt: RedlockAttempt, *args: Any) -> None:
        attempt.reissue(lingers=False)

    with mock.patch.object(RedlockSession, "_take_back", take_back):
        yield


@_mutant
def join_without_tombstone_check(world: BaseWorld) -> Iterator[None]:
    """A late request to join recreates a released lock."""
    rewrite(world, "join", "':gone:'", "':nowhere:'")
    yield


@_mutant
def renewal_by_any_server(world: BaseWorld) -> Iterator[None]:
    """The answer of one server is enough to extend the deadline."""
    majority_found = quorum.found

    def found(answers: Sequence[Found | Exception], needed: int) -> Found | None:
        return Found.OURS if Found.OURS in answers else majority_found(answers, needed)

    with mock.patch.object(quorum, "found", found):
        yield
