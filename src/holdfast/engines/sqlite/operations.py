"""The port's operations on the file. Each one completes without waiting, or raises Contended having done nothing.

There are no tombstones (rule 2): a statement runs in the calling thread, so an attempt ends when its call ends, and
nothing of a claim can arrive after its release or withdrawal.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

from holdfast.engines import descriptions
from holdfast.engines.base import (
    EXCLUSIVE,
    Busy,
    Claim,
    Found,
    Granted,
    Kind,
    RequestFailed,
    SimpleAttempt,
    is_of_grant,
    wrong_kind,
)
from holdfast.engines.sqlite import statements
from holdfast.engines.sqlite.faults import Contended
from holdfast.engines.sqlite.notes import AWAITED, BROKEN, UNMARKED, is_released
from holdfast.engines.sqlite.share_rows import live_shares, marked_kind
from holdfast.engines.sqlite.store import NOTED, UNAWAITED, WAITED, Parameters, Store
from holdfast.engines.sqlite.verdict import Row, Verdict, adopted, judge
from holdfast.engines.sqlite.wakeup_socket import FOR_WATCHDOG, HANDED_OVER, send_wakeup
from holdfast.errors import EngineRefused

SECOND: Final = 1_000_000
_OURS: Final = Found.OURS  # looked up in its class it costs 0.1 µs, before Python 3.12
#: Lost races in a row before ``take`` answers "busy". In each of them another process got the name.
ROUNDS: Final = 8
# What is handed over to a waiter ends after this, unless the waiter begins its lease before. In µs.
_HANDED_OVER: Final = 2 * SECOND
# The value of ``waiting`` by which a waiter asks for a hand-over.
_NEXT: Final = 2
# How many unreachable waiters are skipped to find one to wake; waiters behind them re-poll.
_SKIPS: Final = 32


def take(store: Store, now: int, attempt: SimpleAttempt) -> Granted | Busy:
    """One attempt to get ``claim.name``, or to confirm that the claim has it already."""
    claim = attempt.claim
    wall = time.time_ns() // 1000
    first, victim, seen = wall, None, 0
    for _ in range(ROUNDS):
        if _try(store, now, attempt, wall, first, victim, seen):
            # Its entry in the queue was removed with it, by a trigger.
            store.held[claim.owner], attempt.queued = WAITED if attempt.queued else UNAWAITED, False
            return Granted(first + claim.tokens - 1)
        row = look(store, claim.name)
        if row is None:
            if not _remove_dead_ahead(store, now, claim):
                return Busy(None)
            continue
        if _is_ours(store, claim, row):
            if extend(store, now, claim, claim.ttl) is _OURS:
                return _found_granted(store, attempt, row.token)
            continue
        kind = marked_kind(row.owner)
        if kind is not None:
            if kind is Kind.SEMAPHORE or live_shares(store, now, claim.name):
                raise wrong_kind(claim.name, claim.mode.kind, kind)
            continue  # nothing was held of it any more, and now it is free
        verdict = judge_lock(store, now, claim.name, row)
        if verdict is Verdict.FOREIGN:
            return adopt(store, now, claim.name, row)
        if verdict is Verdict.HELD:
            return Busy((row.expires - now) / SECOND)
        if row.token < first and row.owner == victim and not _remove_dead_ahead(store, now, claim):
            return Busy(None)
        # The stored token is ahead of the wall clock, or the row may be taken: make the statement name what was read.
        first, victim, seen = max(first, row.token + 1), row.owner, row.expires
    return Busy(None)


def busy(store: Store, now: int, name: str, owner: str) -> Busy | None:
    """After a first statement that took nothing: the answer of ``take`` if another claim holds the name; None if it
    must find out."""
    row = look(store, name)
    if row is None or row.owner == owner or marked_kind(row.owner) is not None:
        return None
    return Busy((row.expires - now) / SECOND) if judge_lock(store, now, name, row) is Verdict.HELD else None


def judge_lock(store: Store, now: int, name: str, row: Row, mark: int = UNMARKED) -> Verdict:
    """Whether the name may be taken now. If not, ``mark`` is left for its owner, where that releases by a note."""
    verdict = judge(row, now, store.boot, store.is_dead)
    if row.owner is None or verdict is Verdict.LAPSED:
        return verdict
    # Whatever kernel it was written under: a release is permanent.
    released = is_released(store.directory.fileno, row.process, name, row.owner, mark)
    return Verdict.LAPSED if released else verdict


def transfer(store: Store, now: int, attempt: SimpleAttempt, from_owner: str) -> Granted | Found:
    """Give the name from ``from_owner`` to the attempt, or confirm that the attempt has it already."""
    claim, process, boot = attempt.claim, process_of(store, attempt.claim), store.boot
    wall, ttl = time.time_ns() // 1000, int(claim.ttl * SECOND)
    until = now + ttl
    if until > store.proven_until:
        store.extend_proof(until, now)
    row = (claim.owner, process, boot, until, until, boot, ttl, wall, claim.tokens - 1, wall, described(claim))
    held = (claim.name, from_owner, store.process, boot, adopted(boot), now)
    if store.write(statements.TRANSFER, (*row, *held)):
        store.held.pop(from_owner, None)
    elif extend(store, now, claim, claim.ttl) is not _OURS:
        found = look(store, claim.name)
        gone = found is None or judge_lock(store, now, claim.name, found) in (Verdict.FREE, Verdict.LAPSED)
        return Found.GONE if gone else Found.STOLEN
    found = look(store, claim.name)
    if found is None or found.owner != claim.owner:
        return Found.STOLEN  # from a ticket, by another client, before this was read
    if not claim.detached:
        store.held[claim.owner] = UNAWAITED
    return Granted(found.token)


def process_of(store: Store, claim: Claim) -> str:
    """The process whose death ends the claim. None for a ticket's, which ends by its ttl only."""
    return "" if claim.detached else store.process


def _try(store: Store, now: int, attempt: SimpleAttempt, wall: int, first: int, victim: str | None, seen: int) -> int:
    claim = attempt.claim
    ttl = int(claim.ttl * SECOND)
    ahead = claim.tokens - 1
    until, last = now + ttl, first + ahead
    if until > store.proven_until:
        store.extend_proof(until, now)
    description = described(claim)
    row = (claim.name, claim.owner, store.process, store.boot, until, ttl, last, wall, description)
    if claim.fair or claim.non_barging:
        turn = (claim.name, store.boot, now, claim.name, claim.owner)
        return store.write(statements.TAKE_IN_TURN[attempt.queued], (*row, *turn, ahead, victim, seen))
    return store.write(statements.TAKE[attempt.queued], (*row, ahead, victim, seen))


def described(claim: Claim, *, always: bool = False) -> bytes:
    """The description, with the number of reserved tokens if there are several. Not a column: a process with an earlier
    version would leave the previous holder's value in it. ``always``: also with one, for an entry in the queue."""
    if claim.tokens == 1 and not always:
        return claim.description
    return b'{"tokens":%d%b%b' % (claim.tokens, b"" if claim.description == b"{}" else b",", claim.description[1:])


def _found_granted(store: Store, attempt: SimpleAttempt, token: int) -> Granted:
    """Remove a claim that was granted before from the queue. This must not fail: the grant has happened."""
    claim = attempt.claim
    store.held[claim.owner] = WAITED if attempt.queued else UNAWAITED
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
    which = (claim.name, store.boot, now, claim.name, claim.owner)
    return remove_dead(store, claim.name, statements.FIRST_AHEAD, which)


def remove_dead(store: Store, name: str, first: str, parameters: Parameters) -> bool:
    """Remove the waiters of processes that have ended, as long as ``first`` finds one. False: it finds a live one."""
    while found := store.read(first, parameters):
        ((process,),) = found
        if not store.is_dead(process):
            return False
        store.write(statements.REMOVE_DEAD, (name, process))
    return True


def _is_ours(store: Store, claim: Claim, row: Row) -> bool:
    # The process must match too: after a fork the child has the parent's claims in memory, but does not own them.
    return row.owner == claim.owner and row.process == store.process


def adopt(store: Store, now: int, name: str, row: Row) -> Busy:
    store.write(statements.ADOPT, (adopted(store.boot), now + row.ttl, name, row.owner, row.boot, row.expires))
    return Busy(row.ttl / SECOND)


def look(store: Store, name: str) -> Row | None:
    """The row of ``name``; None if it was never locked, or its row has been removed since."""
    rows = store.read(statements.LOOK, (name,))
    return Row._make(rows[0]) if rows else None


def is_worth_trying(store: Store, now: int, attempt: SimpleAttempt) -> tuple[bool, Row | None]:
    """Whether ``take`` would succeed for a waiting claim now; and the row that prevents it, if not."""
    claim = attempt.claim
    row = _look_waiting(store, claim.name)
    if row is not None:
        verdict = judge_lock(store, now, claim.name, row, AWAITED)
        if verdict is Verdict.FOREIGN:
            return True, row  # ``take`` adopts it
        if verdict is Verdict.HELD:
            return _is_ours(store, claim, row) or marked_kind(row.owner) is not None, row
    return _remove_dead_ahead(store, now, claim), None


def _look_waiting(store: Store, name: str) -> Row | None:
    """The row of ``name``, as it was after ``waiting`` was set: a later release sends a wake-up."""
    rows = store.read(statements.LOOK_WAITING, (name,))
    if not rows:
        return None
    waiting, *row = rows[0]
    held = Row._make(row)
    if waiting or held.owner is None:
        return held
    # The last release has sent one wake-up, perhaps to this claim, and another claim was faster. Read again after this:
    # a release before it sends none.
    store.write(statements.AWAIT, (name,))
    return look(store, name)


def extend(store: Store, now: int, claim: Claim, ttl: float) -> Found:
    """Move the expiry of a held claim to ``ttl`` from ``now`` or later; never creates anything."""
    which = (claim.name, claim.owner, process_of(store, claim))
    changed = store.write(statements.EXTEND, (*extension(store, now, ttl), *which))
    return _OURS if changed else found_instead(store, now, claim)


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
    name, owner, process = claim.name, claim.owner, process_of(store, claim)
    which = (time.time_ns() // 1000, name, owner, process)
    if store.held.get(owner) not in (WAITED, NOTED) and store.write(statements.RELEASE_UNAWAITED, which):
        store.held.pop(owner, None)
        return _OURS
    if free_awaited(store, now, name, owner, process, claim.fair) or store.was_noted(owner):
        return _OURS
    return found_instead(store, now, claim)


def free_awaited(store: Store, now: int, name: str, owner: str, process: str, fair: bool = False) -> bool:
    """Free the name if ``owner`` holds it for ``process``, where waiters are to be expected. ``fair``: the first waiter
    has it next in any case."""
    found = store.read(statements.FIRST_WAITER, (name, name, store.boot, now))
    first = found[0] if found else None
    release = statements.RELEASE
    if first is not None:
        if not fair and first[0] < _NEXT:
            release = statements.RELEASE_TO_ANY  # unless a waiter asks for a hand-over before it
        elif _hand_over(store, now, name, owner, process, first):
            store.held.pop(owner, None)
            return True
    if store.write(release, (time.time_ns() // 1000, name, owner, process)):
        store.held.pop(owner, None)
        wake_first(store, now, name, first)
        return True
    return release is statements.RELEASE_TO_ANY and free_awaited(store, now, name, owner, process, True)


def _hand_over(store: Store, now: int, name: str, owner: str, process: str, first: Sequence[Any]) -> bool:
    """Release the name to its first waiter. False: nothing was done.

    The waiter begins its lease when it is woken (``accept``; or ``take``, which finds its claim there). If it is
    frozen, the name is free after a short time; if it is dead, at once.
    """
    _, to, its_process, socket_name, description, mode = first
    tokens = descriptions.parsed(description).get("tokens")
    # A waiter of an earlier version does not say how many tokens it wants. One without a socket would notice late. And
    # the holder's own entry may have stayed in the queue (_found_granted).
    if not isinstance(tokens, int) or not socket_name or mode != EXCLUSIVE.label or to == owner:
        return False
    wall = time.time_ns() // 1000
    row = (to, its_process, store.boot, now + _HANDED_OVER, wall, tokens - 1, wall, description)
    if not store.write(statements.HAND_OVER, (*row, name, owner, process, name, to)):
        return False
    if not send_wakeup(store.directory, socket_name, HANDED_OVER):
        # It has left, or died: it has nothing from now on. Or it has found its claim there by a look, and begun its
        # lease: then it has no need of its socket.
        try:
            if store.write(statements.TAKE_BACK, (wall, name, to, its_process)):
                wake_first(store, now, name)
        except (Contended, RequestFailed, EngineRefused):
            pass  # the release has happened; what was handed over ends soon
    return True


def accept(store: Store, now: int, claim: Claim) -> int | None:
    """Begin the lease of what was handed over to ``claim``; the token of it. None: nothing was, or it has ended."""
    row = look(store, claim.name)
    if row is None or row.ttl or row.boot != store.boot or not _is_ours(store, claim, row):
        return None
    ttl = int(claim.ttl * SECOND)
    until = now + ttl
    if until > store.proven_until:
        store.extend_proof(until, now)
    if not store.write(statements.ACCEPT, (until, ttl, claim.name, claim.owner, row.process, row.token)):
        return None
    store.held[claim.owner] = WAITED
    return row.token


def found_instead(store: Store, now: int, claim: Claim) -> Found:
    """What is there in the place of what ``claim`` held; the rest of it is removed."""
    store.held.pop(claim.owner, None)
    row = look(store, claim.name)
    if row is not None and row.owner == claim.owner and row.process in store.former:
        # Ours from before the files were displaced. It was lost then: it may have been granted to others since.
        if store.write(statements.RELEASE, (time.time_ns() // 1000, claim.name, claim.owner, row.process)):
            wake_first(store, now, claim.name)
        return Found.GONE
    return Found.GONE if row is None or row.owner is None else Found.STOLEN


def wake_first(store: Store, now: int, name: str, first: Sequence[Any] | None = None) -> None:
    """Wake the first reachable waiter. Called after the release is committed: a waiter that enters later looks first.
    ``first``: the one that was found before the release, if any.

    Best effort, and it must not fail: the release before it has happened and must not be repeated.
    """
    try:
        for _ in range(_SKIPS):
            if first is not None:
                (_, owner, _, socket_name, *_), first = first, None
            elif found := store.read(statements.FIRST, (name, store.boot, now)):
                ((owner, socket_name),) = found
            else:
                return
            if not socket_name or send_wakeup(store.directory, socket_name):  # a waiter without a socket polls
                return
            store.write(statements.LEAVE, (name, owner))
    except (Contended, RequestFailed, EngineRefused):
        pass  # waiters re-poll


def leave_queue(store: Store, now: int, claim: Claim) -> None:
    """Remove the claim's queue entry. A wake-up may have been sent to it: pass it on, if the name is free, or have the
    holder send another."""
    leave(store, claim)
    store.write(statements.AWAIT, (claim.name,))
    row = look(store, claim.name)
    if row is not None and _is_ours(store, claim, row):
        give_up(store, now, claim)  # it was handed over meanwhile
    elif row is None or judge_lock(store, now, claim.name, row, AWAITED) in (Verdict.FREE, Verdict.LAPSED):
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
    if row is None or judge_lock(store, now, name, row) in (Verdict.FREE, Verdict.LAPSED):
        return False
    if token is not None and not is_of_grant(token, row.token, tokens_of(descriptions.parsed(rows[0][7]))):
        return False
    # Before it is: a release by a note from now on finds out. One before that has been reported as done.
    if judge_lock(store, now, name, row, BROKEN) is Verdict.LAPSED:
        return False
    wall = time.time_ns() // 1000
    if not store.write(statements.BREAK, (wall, wall, name, row.owner)):
        return False
    report_break(store, name, {row.process})
    wake_first(store, now, name)
    return True


def tokens_of(about: Mapping[str, Any]) -> int:
    """How many tokens were reserved for the holder with this description."""
    tokens = about.get("tokens", 1)
    return tokens if isinstance(tokens, int) and tokens > 0 else 1


def report_break(store: Store, name: str, processes: Collection[str]) -> None:
    """Have the watchdogs of these processes verify what they hold of ``name``."""
    for process in processes:
        for socket_name in store.wakeup_sockets_of(process, FOR_WATCHDOG):
            send_wakeup(store.directory, socket_name, name.encode())
