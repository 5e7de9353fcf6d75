"""Deliberate bugs of the queue inside a process."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Final
from unittest import mock

from holdfast._core.grant import Grant
from holdfast._core.local_queue import LocalQueue, LocalWaiter, Turn
from tests.simulation.mutants import Mutant, register
from tests.simulation.world.base import BaseWorld

LOCAL_MUTANTS: Final[dict[str, Mutant]] = {}
_mutant = partial(register, among=LOCAL_MUTANTS)


@_mutant
def taken_back_and_accepted(world: BaseWorld) -> Iterator[None]:
    """A waiter that was woken takes its turn for granted, although another caller has taken the grant back."""
    accept = LocalQueue.accept

    def accept_anyway(self: LocalQueue, key: str, waiter: LocalWaiter) -> bool:
        if waiter.turn is Turn.WAITING and waiter.inherited is not None and waiter.event.is_set():
            waiter.turn = Turn.INHERIT
        return accept(self, key, waiter)

    with mock.patch.object(LocalQueue, "accept", accept_anyway):
        yield


@_mutant
def taken_back_without_a_place(world: BaseWorld) -> Iterator[None]:
    """A waiter from which the grant was taken back waits again, but not in the queue."""

    def exchange(self: LocalQueue, key: str, waiter: LocalWaiter, receiver: LocalWaiter, grant: Grant) -> None:
        self.occupants[key] = receiver.caller
        waiter.turn = Turn.WAITING

    with mock.patch.object(LocalQueue, "_exchange", exchange):
        yield


@_mutant
def taken_back_without_a_token(world: BaseWorld) -> Iterator[None]:
    """A caller that takes the grant back uses the token of the hold before it."""
    take_back = LocalQueue.take_back

    def same_token(self: LocalQueue, key: str, receiver: LocalWaiter, now: float) -> Grant | None:
        grant = take_back(self, key, receiver, now)
        if grant is not None:
            grant.next_token = min(grant.next_token, grant.last_token + 1) - 1
        return grant

    with mock.patch.object(LocalQueue, "take_back", same_token):
        yield
