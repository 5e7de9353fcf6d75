"""The port's operations on the file. Each one completes without waiting, or raises Contended having done nothing.

There are no tombstones (rule 2): a statement runs in the calling thread, so an attempt ends when its call ends, and
nothing of a claim can arrive after its release or withdrawal.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

from holdfast.engines import descriptions
from holdfast.engines.base import (
    MOST_WAITERS,
    Busy,
    Claim,
    Found,
    Granted,
    Holder,
    Kind,
    LockState,
    RequestFailed,
    SimpleAttempt,
    Waiter,
    is_of_grant,
    wrong_kind,
)
from holdfast.engines.sqlite import statements
from holdfast.engines.sqlite.faults import Contended
from holdfast.engines.sqlite.share_rows import live_shares, marked_kind
from holdfast.engines.sqlite.store import Store
from holdfast.engines.sqlite.verdict import Row, Verdict, adopted, judge
from holdfast.engines.sqlite.wakeup_socket import FOR_WATCHDOG, send_wakeup
from holdfast.errors import EngineRefused

SECOND: Final = 1_000_000
_OURS: Final = Found.OURS  # looked up in its class it costs 0.1 µs, before Python 3.12
#: Lost races in a row before ``take`` answers "busy". In each of them another process got the name.
ROUNDS: Final = 8
# How many unreachable waiters are skipped to find one to wake; waiters behind them re-poll.
_SKIPS: Final = 32


def take(store: Store, now: int, attempt: SimpleAttempt) -> Granted | Busy:
    """One attempt to get ``claim.name``, or to confirm that the claim has it already."""
    claim = attempt.claim
    wall = time.time_ns() // 1000
    first, victim, seen = wall, None, 0
    for _ in range(ROUNDS):
        if _try(store, now, claim, wall, first, victim, seen):
            return _granted(store, attempt, first + claim.tokens - 1)
        row = look(store, claim.name)
        if row is None:
            if not _remove_dead_ahead(store, now, claim):
                return Busy(None)
            continue
        if _is_ours(store, claim, row):
            if extend(store, now, claim, claim.ttl) is _OURS:
                return _granted(store, attempt, row.token)
            continue
        kind = marked_kind(row.owner)
        if kind is not None:
            if kind is Kind.SEMAPHORE or live_shares(store, now, claim.name):
                raise wrong_kind(claim.name, claim.mode.kind, kind)
            continue  # nothing was held of it any more, and now it is free
        verdict = judge(row, now, store.boot, store.is_dead)
        if verdict is Verdict.FOREIGN:
            return _adopt(store, now, claim.name, row)
        if verdict is Verdict.HELD:
            return Busy((row.expires - now) / SECOND)
        if row.token < first and row.owner == victim and not _remove_dead_ahead(store, now, claim):
            return Busy(None)
        # The stored token is ahead of the wall clock, or the row may be taken: make the statement name what was read.
        first, victim, seen = max(first, row.token + 1), row.owner, row.expires
    return Busy(None)


def transfer(store: Store, now: int, attempt: SimpleAttempt, from_owner: str) -> Granted | Found:
    """Give the name from ``from_owner`` to the attempt, or confirm that the attempt has it already."""
    claim, process, boot = attempt.claim, process_of(store, attempt.claim), store.boot
    wall, ttl = time.time_ns() // 1000, int(claim.ttl * SECOND)
    until = now + ttl
    if until > store.proven_until:
        store.extend_proof(until, now)
    row = (claim.owner, process, boot, until, until, boot, ttl, wall, claim.tokens - 1, wall, _described(claim))
    held = (claim.name, from_owner, store.process, boot, adopted(boot), now)
    if store.write(statements.TRANSFER, (*row, *held)):
        store.held.discard(from_owner)
    elif extend(store, now, claim, claim.ttl) is not _OURS:
        found = look(store, claim.name)
        gone = found is None or judge(found, now, boot, store.is_dead) in (Verdict.FREE, Verdict.LAPSED)
        return Found.GONE if gone else Found.STOLEN
    found = look(store, claim.name)
    if found is None or found.owner != claim.owner:
        return Found.STOLEN  # from a ticket, by another client, before this was read
    if not claim.detached:
        store.held.add(claim.owner)
    return Granted(found.token)


def process_of(store: Store, claim: Claim) -> str:
    """The process whose death ends the claim. None for a ticket's, which ends by its ttl only."""
    return "" if claim.detached else store.process


def _try(store: Store, now: int, claim: Claim, wall: int, first: int, victim: str | None, seen: int) -> int:
    ttl = int(claim.ttl * SECOND)
    ahead = claim.tokens - 1
    until, last = now + ttl, first + ahead
    if until > store.proven_until:
        store.extend_proof(until, now)
    description = _described(claim)
    row = (claim.name, claim.owner, store.process, store.boot, until, ttl, last, wall, description)
    if claim.fair or claim.non_barging:
        turn = (claim.name, store.boot, now, claim.name, claim.owner)
        return store.write(statements.TAKE_IN_TURN, (*row, *turn, ahead, victim, seen))
    return store.write(statements.TAKE, (*row, ahead, victim, seen))


def _described(claim: Claim) -> bytes:
    """The description, with the number of reserved tokens if there are several. Not a column: a process with an earlier
    version would leave the previous holder's value in it."""
    if claim.tokens == 1:
        return claim.description
    return b'{"tokens":%d%b%b' % (claim.tokens, b"" if claim.description == b"{}" else b",", claim.description[1:])


def _granted(store: Store, attempt: SimpleAttempt, token: int) -> Granted:
    """Remove the granted claim from the queue. This must not fail: the grant has happened."""
    claim = attempt.claim
    store.held.add(claim.owner)
    if attempt.queued:
        try:
            store.write(statements.LEAVE, (claim.name, claim.owner))
            attempt.queued = False
        except (Contended, RequestFailed, EngineRefused):
            pass  # the entry expires, or is removed when a wake-up cannot be delivered to it
    return Granted(token)


def _remove_dead_ahead(store: Store, now: int, claim: Claim) -> bool:
    """Remove dead waiters before a claim that does not barge. False: a live waiter is before it."""
    if not (claim.fair or claim.non_barging):
        return True
    ahead = store.read(statements.AHEAD, (claim.name, store.boot, now, claim.name, claim.owner))
    return remove_dead(store, claim.name, ahead)


def remove_dead(store: Store, name: str, processes: Sequence[tuple[str]]) -> bool:
    """Remove the waiters of processes that have ended. False: one of them is alive."""
    for (process,) in processes:
        if not store.is_dead(process):
            return False
        store.write(statements.REMOVE_DEAD, (name, process))
    return True


def _is_ours(store: Store, claim: Claim, row: Row) -> bool:
    # The process must match too: after a fork the child has the parent's claims in memory, but does not own them.
    return row.owner == claim.owner and row.process == store.process


def _adopt(store: Store, now: int, name: str, row: Row) -> Busy:
    store.write(statements.ADOPT, (adopted(store.boot), now + row.ttl, name, row.owner, row.boot, row.expires))
    return Busy(row.ttl / SECOND)


def look(store: Store, name: str) -> Row | None:
    """The row of ``name``; None if it was never locked, or its row has been removed since."""
    rows = store.read(statements.LOOK, (name,))
    return Row._make(rows[0]) if rows else None


def is_worth_trying(store: Store, now: int, attempt: SimpleAttempt) -> tuple[bool, Row | None]:
    """Whether ``take`` would succeed for a waiting claim now; and the row that prevents it, if not."""
    claim = attempt.claim
    row = look(store, claim.name)
    if row is not None:
        verdict = judge(row, now, store.boot, store.is_dead)
        if verdict is Verdict.FOREIGN:
            return True, row  # ``take`` adopts it
        if verdict is Verdict.HELD:
            return _is_ours(store, claim, row) or marked_kind(row.owner) is not None, row
    return _remove_dead_ahead(store, now, claim), None


def extend(store: Store, now: int, claim: Claim, ttl: float) -> Found:
    """Move the expiry of a held claim to ``ttl`` from ``now`` or later; never creates anything."""
    which = (claim.name, claim.owner, process_of(store, claim))
    changed = store.write(statements.EXTEND, (*extension(store, now, ttl), *which))
    return _OURS if changed else _found_instead(store, claim)


def extension(store: Store, now: int, ttl: float) -> tuple[Any, ...]:
    """The parameters of a statement that extends to ``ttl`` from ``now``."""
    micro = int(ttl * SECOND)
    expires = now + micro
    if expires > store.proven_until:
        store.extend_proof(expires, now)
    return store.boot, expires, expires, store.boot, micro


def extend_all(store: Store, now: int, claims: Sequence[Claim], ttl: float) -> list[Found]:
    """The same for at most a batch of claims, in one statement if all of them are held."""
    setting = (*extension(store, now, ttl), store.process)
    if store.write(statements.EXTEND_ALL, (*given(claims), *setting)) == len(claims):
        return [_OURS] * len(claims)
    return [extend(store, now, claim, ttl) for claim in claims]


def given(claims: Sequence[Claim]) -> list[str]:
    """The names and owners of a batch, padded to its full size."""
    padding = statements.BATCH - len(claims)
    filled = [*claims, *[claims[-1]] * padding]
    return [word for claim in filled for word in (claim.name, claim.owner)]


def give_up(store: Store, now: int, claim: Claim) -> Found:
    """Free the name if ``claim`` holds it, and wake the first waiter."""
    which = (time.time_ns() // 1000, claim.name, claim.owner, process_of(store, claim))
    if store.write(statements.RELEASE_UNAWAITED, which):
        store.held.discard(claim.owner)
        return _OURS
    if store.write(statements.RELEASE, which):
        store.held.discard(claim.owner)
        wake_first(store, now, claim.name)
        return _OURS
    return _found_instead(store, claim)


def _found_instead(store: Store, claim: Claim) -> Found:
    store.held.discard(claim.owner)
    row = look(store, claim.name)
    if row is not None and row.owner == claim.owner and row.process in store.former:
        # Ours from before the files were displaced. It was lost then: it may have been granted to others since.
        store.write(statements.RELEASE, (time.time_ns() // 1000, claim.name, claim.owner, row.process))
        return Found.GONE
    return Found.GONE if row is None or row.owner is None else Found.STOLEN


def wake_first(store: Store, now: int, name: str) -> None:
    """Wake the first reachable waiter. Called after the release is committed: a waiter that enters later looks first.

    Best effort, and it must not fail: the release before it has happened and must not be repeated.
    """
    try:
        for _ in range(_SKIPS):
            first = store.read(statements.FIRST, (name, store.boot, now))
            if not first:
                return
            ((owner, socket_name),) = first
            if not socket_name or send_wakeup(store.directory, socket_name):  # a waiter without a socket polls
                return
            store.write(statements.LEAVE, (name, owner))
    except (Contended, RequestFailed, EngineRefused):
        pass  # waiters re-poll


def withdraw(store: Store, now: int, attempt: SimpleAttempt) -> Found:
    """Leave nothing of ``attempt`` behind."""
    if attempt.queued:
        leave_queue(store, now, attempt.claim)
    return give_up(store, now, attempt.claim)


def withdraw_all(store: Store, now: int, attempts: Sequence[SimpleAttempt]) -> list[Found]:
    """The same for at most a batch of attempts; those that hold are released in one statement."""
    claims = [attempt.claim for attempt in attempts]
    for attempt in attempts:
        if attempt.queued:
            leave_queue(store, now, attempt.claim)
    batch = given(claims)
    ours = {owner for (owner,) in store.read(statements.COUNT_OURS, (*batch, store.process))}
    if ours:
        store.write(statements.RELEASE_ALL, (*batch, time.time_ns() // 1000, store.process))
        store.held -= ours
        _wake_awaited(store, now, batch)
    return [_OURS if claim.owner in ours else _found_instead(store, claim) for claim in claims]


def _wake_awaited(store: Store, now: int, batch: Sequence[str]) -> None:
    try:
        for (name,) in store.read(statements.AWAITED, batch):
            wake_first(store, now, name)
    except (Contended, RequestFailed, EngineRefused):
        pass  # waiters re-poll


def leave_queue(store: Store, now: int, claim: Claim) -> None:
    """Remove the claim's queue entry. If the name is free, wake the next waiter: a wake-up may have been sent to it."""
    leave(store, claim)
    row = look(store, claim.name)
    if row is None or row.owner is None:
        wake_first(store, now, claim.name)


def leave(store: Store, claim: Claim) -> None:
    """Remove the claim's queue entry, and no more."""
    store.write(statements.LEAVE, (claim.name, claim.owner))


def break_(store: Store, now: int, name: str, token: int | None = None) -> bool:
    """Free the name and raise its token. Reports it to the holder's process and wakes the first waiter.

    With ``token``, only if it is the holder's. The statement is conditional on the owner that was read, and an owner is
    never reused: no later holder is broken.
    """
    rows = store.read(statements.INSPECT, (store.boot, now, name))
    row = Row._make(rows[0][:6]) if rows else None
    if row is None or judge(row, now, store.boot, store.is_dead) in (Verdict.FREE, Verdict.LAPSED):
        return False
    if token is not None and not is_of_grant(token, row.token, _tokens(descriptions.parsed(rows[0][7]))):
        return False
    wall = time.time_ns() // 1000
    if not store.write(statements.BREAK, (wall, wall, name, row.owner)):
        return False
    report_break(store, name, {row.process})
    wake_first(store, now, name)
    return True


def report_break(store: Store, name: str, processes: Collection[str]) -> None:
    """Have the watchdogs of these processes verify what they hold of ``name``."""
    for process in processes:
        for socket_name in store.wakeup_sockets_of(process, FOR_WATCHDOG):
            send_wakeup(store.directory, socket_name, name.encode())


def inspect(store: Store, now: int, name: str) -> LockState:
    """The name as it is now, for people."""
    rows = store.read(statements.INSPECT, (store.boot, now, name))
    if not rows:
        return LockState(name)
    row, (since, description, waiters) = Row._make(rows[0][:6]), rows[0][6:]
    queue = _queue(store, now, name) if waiters else ()
    owner = row.owner
    if owner is None or judge(row, now, store.boot, store.is_dead) is Verdict.LAPSED:
        return LockState(name, (), waiters, row.token, queue=queue)
    if row.boot not in (store.boot, adopted(store.boot)):
        row = _adopt_seen(store, now, name, row)
    remaining = (row.expires - now) / SECOND
    about = descriptions.parsed(description)
    holder = Holder(
        owner,
        **descriptions.facts(about),
        since=since / SECOND,
        until=time.time() + remaining,
        token=row.token - _tokens(about) + 1,
        count=1,
    )
    return LockState(name, (holder,), waiters, row.token, remaining, queue)


def waiters(store: Store, now: int, name: str) -> tuple[int, tuple[Waiter, ...]]:
    """How many claims wait, and the first of them."""
    ((number,),) = store.read(statements.COUNT_WAITERS, (name, store.boot, now))
    return number, _queue(store, now, name) if number else ()


def _queue(store: Store, now: int, name: str) -> tuple[Waiter, ...]:
    return tuple(
        Waiter(
            owner,
            **descriptions.facts(descriptions.parsed(description)),
            since=since / SECOND if since else None,
            mode=mode,
        )
        for owner, since, description, mode in store.read(statements.QUEUE, (name, store.boot, now, MOST_WAITERS))
    )


def _tokens(about: Mapping[str, Any]) -> int:
    """How many tokens were reserved for the holder with this description."""
    tokens = about.get("tokens", 1)
    return tokens if isinstance(tokens, int) and tokens > 0 else 1


def _adopt_seen(store: Store, now: int, name: str, row: Row) -> Row:
    """Start the clock of a foreign row that is only inspected, so that it does not stay held forever. Best effort."""
    try:
        _adopt(store, now, name, row)
    except (Contended, RequestFailed, EngineRefused):
        pass  # the next inspection does it
    return row._replace(expires=now + row.ttl)


def page_of_names(store: Store, now: int, prefix: str, after: str | None) -> list[tuple[str, str | None, bool]]:
    """Some names that start with ``prefix`` and sort after ``after``, the owner of each, and whether it is held. Empty
    at the end."""
    if after is None:
        rows = store.read(statements.NAMES_FROM, (prefix, _end_of(prefix)))
    else:
        rows = store.read(statements.NAMES_AFTER, (after, _end_of(prefix)))
    return [(name, row[0], _is_held(store, now, name, Row._make(row))) for name, *row in rows]


def _is_held(store: Store, now: int, name: str, row: Row) -> bool:
    verdict = judge(row, now, store.boot, store.is_dead)
    if verdict is Verdict.FOREIGN:
        _adopt_seen(store, now, name, row)
    return verdict in (Verdict.HELD, Verdict.FOREIGN)


def _end_of(prefix: str) -> str | bytes:
    """A value that sorts after all names with this prefix. SQLite sorts text as Python does, and blobs after text."""
    for length in range(len(prefix), 0, -1):
        following = ord(prefix[length - 1]) + 1
        if following <= sys.maxunicode:
            # Surrogates are not text: U+D7FF is followed by U+E000.
            return prefix[: length - 1] + chr(0xE000 if following == 0xD800 else following)
    return b""
