"""Leaving nothing of attempts behind, whatever they are at."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from holdfast.engines.base import Claim, Found, RequestFailed, SimpleAttempt
from holdfast.engines.sqlite import operations, share_statements, shares, statements
from holdfast.engines.sqlite.faults import Contended
from holdfast.engines.sqlite.store import Store
from holdfast.errors import EngineRefused


class _Table(NamedTuple):
    """How claims whose rows are in one table are given up."""

    leave_queue: Callable[[Store, int, Claim], None]
    give_up: Callable[[Store, int, Claim], Found]
    found_instead: Callable[[Store, int, Claim], Found]
    count_ours: str
    release_all: str


_LOCKS: Final = _Table(
    operations.leave_queue,
    operations.give_up,
    operations.found_instead,
    statements.COUNT_OURS,
    statements.RELEASE_ALL,
)
_SHARES: Final = _Table(
    shares.leave_queue,
    shares.give_up,
    shares.found_instead,
    share_statements.COUNT_OURS,
    share_statements.RELEASE_ALL,
)


def withdraw(store: Store, now: int, attempts: Sequence[SimpleAttempt]) -> list[Found]:
    """Withdraw at most a batch of attempts, all in the same table. What several of them hold is released in one
    statement."""
    claims = [attempt.claim for attempt in attempts]
    table = _SHARES if shares.is_shared(claims[0]) else _LOCKS
    for attempt in attempts:
        if attempt.queued:
            table.leave_queue(store, now, attempt.claim)
    if len(claims) == 1:
        return [table.give_up(store, now, claims[0])]
    batch = operations.given(claims)
    ours = {owner for (owner,) in store.read(table.count_ours, (*batch, store.process))}
    if ours:
        store.write(table.release_all, (*batch, store.process))
        for owner in ours:
            store.held.pop(owner, None)
        _wake_awaited(store, now, batch)
    return [Found.OURS if claim.owner in ours else table.found_instead(store, now, claim) for claim in claims]


def _wake_awaited(store: Store, now: int, batch: Sequence[str]) -> None:
    try:
        for (name,) in store.read(statements.AWAITED, batch):
            operations.wake_first(store, now, name)
    except (Contended, RequestFailed, EngineRefused):
        pass  # waiters re-poll
