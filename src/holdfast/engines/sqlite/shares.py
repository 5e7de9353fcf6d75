"""Read-write locks and semaphores: what each operation of the port does to the file.

One rule decides: a request is granted when there is room for it, and no live request that conflicts with it stands
before it in the queue. The statement that grants is the judge (share_statements.py); what is read before and after it
only says why not, and removes what has lapsed.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from holdfast.engines import descriptions
from holdfast.engines.base import (
    EXCLUSIVE,
    READ,
    Busy,
    Claim,
    Found,
    Granted,
    Holder,
    Kind,
    LockState,
    RequestFailed,
    SimpleAttempt,
    permits,
    wrong_kind,
)
from holdfast.engines.sqlite import inspection, operations
from holdfast.engines.sqlite import share_statements as statements
from holdfast.engines.sqlite.faults import Contended
from holdfast.engines.sqlite.operations import ROUNDS, SECOND
from holdfast.engines.sqlite.share_rows import Share, live_shares, marked_kind
from holdfast.engines.sqlite.store import UNAWAITED, Store
from holdfast.engines.sqlite.verdict import Row, Verdict
from holdfast.engines.sqlite.wakeup_socket import send_wakeup
from holdfast.errors import EngineRefused

_OURS: Final = Found.OURS


class NestedAttempt(SimpleAttempt):
    """To read a name that its caller holds for writing."""

    __slots__ = ("under",)

    def __init__(self, claim: Claim, under: str) -> None:
        super().__init__(claim)
        self.under = under  #: the owner of the write


def is_shared(claim: Claim) -> bool:
    """Whether it is for a read-write lock or a semaphore."""
    return claim.mode is not EXCLUSIVE and claim.mode.kind in statements.MARKS


def take(store: Store, now: int, attempt: SimpleAttempt) -> Granted | Busy:
    """One attempt to get what is claimed, or to confirm that the claim has it already."""
    claim = attempt.claim
    facts = _facts(store, now, attempt)
    if facts["until"] > store.proven_until:
        store.extend_proof(facts["until"], now)
    if attempt.queued and _surroundings(store, claim, facts).decided is False:
        return Busy(None)  # most of many waiters: they write nothing
    for _ in range(ROUNDS):
        if store.write(statements.GRANT[claim.mode.label], facts):
            return _granted(store, now, attempt, facts)
        _agree_on_kind(store, now, claim, facts)
        size = _size(store, claim, facts)
        shares = live_shares(store, now, claim.name)
        if any(_is_ours(store, claim, share) for share in shares):
            if extend(store, now, claim, claim.ttl) is _OURS:
                return _granted(store, now, attempt, facts)
            continue
        if (impossible := _impossible(claim, size)) is not None:
            leave_queue(store, now, claim)
            attempt.queued = False
            return Busy(impossible=impossible)
        if (blocking := _blocking(store, attempt, shares, size)) is not None:
            return Busy((blocking.expires - now) / SECOND)
        if not _remove_dead_before(store, facts):
            return Busy(None)
    return Busy(None)


def _facts(store: Store, now: int, attempt: SimpleAttempt) -> dict[str, Any]:
    """The parameters of the statements."""
    claim, ttl = attempt.claim, int(attempt.claim.ttl * SECOND)
    mode = claim.mode
    return {
        "name": claim.name, "owner": claim.owner, "mode": mode.label, "permits": mode.permits, "size": mode.size,
        "mark": statements.MARKS[mode.kind], "process": store.process, "boot": store.boot, "now": now,
        "until": now + ttl, "ttl": ttl, "wall": time.time_ns() // 1000, "description": claim.description,
        "under": attempt.under if isinstance(attempt, NestedAttempt) else None, "victim": None, "seen": 0,
    }  # fmt: skip


def _granted(store: Store, now: int, attempt: SimpleAttempt, facts: dict[str, Any]) -> Granted:
    """The grant has happened: the token, and a wake-up for the next request, which may have room beside this one."""
    store.held[attempt.claim.owner] = UNAWAITED
    ((token, size, awaited),) = store.read(statements.GRANTED, facts) or ((0, 0, False),)
    attempt.queued = False  # it has left the queue with the grant
    if awaited and attempt.claim.mode.shared:
        operations.wake_first(store, now, attempt.claim.name)
    return Granted(token, size=size or 0)


def _agree_on_kind(store: Store, now: int, claim: Claim, facts: dict[str, Any]) -> None:
    """Raise EngineRefused if the name is in use as another kind. A plain lock that has lapsed becomes the victim."""
    row = operations.look(store, claim.name)
    facts["victim"] = None
    if row is None or row.owner is None or row.owner == facts["mark"]:
        return
    kind = marked_kind(row.owner)
    if kind is None:
        if operations.judge_lock(store, now, claim.name, row) is not Verdict.LAPSED:
            raise wrong_kind(claim.name, claim.mode.kind, Kind.LOCK)
        facts["victim"], facts["seen"] = row.owner, row.expires
    elif kind is Kind.SEMAPHORE or live_shares(store, now, claim.name):
        raise wrong_kind(claim.name, claim.mode.kind, kind)


def _size(store: Store, claim: Claim, facts: dict[str, Any]) -> int:
    """How many permits the semaphore has, 0 for any number. It is created if there is none."""
    if claim.mode.kind is not Kind.SEMAPHORE:
        return 0
    rows = store.read(statements.SIZE, (claim.name,))
    if not rows:
        store.write(statements.CREATE, facts)
        rows = store.read(statements.SIZE, (claim.name,))
    return rows[0][0] if rows else claim.mode.size


def _impossible(claim: Claim, size: int) -> str | None:
    if size == 0 or claim.mode.permits <= size:
        return None
    return f"{claim.mode.permits} permits were asked for, and it has {size}"


def _blocking(store: Store, attempt: SimpleAttempt, shares: Sequence[Share], size: int) -> Row | None:
    """Of what leaves no room for the claim, the row that ends first; None: there is room."""
    mode = attempt.claim.mode
    if mode.kind is Kind.SEMAPHORE:
        if size == 0 or size - sum(share.permits for share in shares) >= mode.permits:
            return None
        blocking = [share.row for share in shares]
    else:
        blocking = [share.row for share in shares if not mode.shared or share.mode != READ.label]
        if isinstance(attempt, NestedAttempt) and any(row.owner == attempt.under for row in blocking):
            return None
    return min(blocking, key=lambda row: row.expires, default=None)


def _remove_dead_before(store: Store, facts: dict[str, Any]) -> bool:
    """Remove dead waiters before the claim. False: a live one that conflicts with it stands before it."""
    return operations.remove_dead(store, facts["name"], statements.FIRST_BEFORE, facts)


def _is_ours(store: Store, claim: Claim, share: Share) -> bool:
    return share.row.owner == claim.owner and share.row.process == store.process


class _Surroundings(NamedTuple):
    """What one statement says about a waiting claim. ``decided``: whether another try is worthwhile, whatever is held;
    None: it depends on that."""

    decided: bool | None
    size: int


def _surroundings(store: Store, claim: Claim, facts: dict[str, Any]) -> _Surroundings:
    ((owner, size, queued, before),) = store.read(statements.AROUND, facts)
    is_new = size is None and claim.mode.kind is Kind.SEMAPHORE
    size = size or 0
    if owner not in (None, facts["mark"]) or is_new or _impossible(claim, size) is not None:
        return _Surroundings(True, size)
    # One live request before it is enough: the others need not be read, however many they are.
    waits = queued and before is not None and not store.is_dead(before)
    return _Surroundings(False if waits else None, size)


def is_worth_trying(store: Store, now: int, attempt: SimpleAttempt) -> tuple[bool, Row | None]:
    """Whether ``take`` would have another answer than "busy" for a waiting claim; and the row that prevents it."""
    claim = attempt.claim
    facts = _facts(store, now, attempt)
    surroundings = _surroundings(store, claim, facts)
    if surroundings.decided is not None:
        return surroundings.decided, None
    size, shares = surroundings.size, live_shares(store, now, claim.name)
    if any(_is_ours(store, claim, share) for share in shares):
        return True, None
    if (blocking := _blocking(store, attempt, shares, size)) is not None:
        return False, blocking
    return _remove_dead_before(store, facts), None


def extend(store: Store, now: int, claim: Claim, ttl: float) -> Found:
    """Move the expiry of what is held to ``ttl`` from ``now`` or later; never creates anything."""
    setting = operations.extension(store, now, ttl)
    if store.write(statements.EXTEND, (*setting, claim.name, claim.owner, store.process)):
        return _OURS
    return found_instead(store, now, claim)


def extend_all(store: Store, now: int, claims: Sequence[Claim], ttl: float) -> list[Found]:
    """The same for at most a batch of claims, in one statement if all of them are held."""
    setting = operations.extension(store, now, ttl)
    given = operations.given(claims)
    if store.write(statements.EXTEND_ALL, (*given, *setting, store.process)) == len(claims):
        return [_OURS] * len(claims)
    return [extend(store, now, claim, ttl) for claim in claims]


def give_up(store: Store, now: int, claim: Claim) -> Found:
    """Give back what the claim holds, and wake the first waiter."""
    which = (claim.name, claim.owner, store.process)
    if store.write(statements.RELEASE_UNAWAITED, which):
        store.held.pop(claim.owner, None)
        return _OURS
    if store.write(statements.RELEASE, which):
        store.held.pop(claim.owner, None)
        operations.wake_first(store, now, claim.name)
        return _OURS
    return found_instead(store, now, claim)


def found_instead(store: Store, now: int, claim: Claim) -> Found:
    """As ``operations.found_instead``."""
    store.held.pop(claim.owner, None)
    stolen = False
    for share in live_shares(store, now, claim.name):
        if share.row.owner == claim.owner and share.row.process in store.former:
            # Ours from before the files were displaced. It was lost then.
            store.write(statements.RELEASE, (claim.name, claim.owner, share.row.process))
        elif claim.mode.kind is Kind.RWLOCK:
            # Other permits, or other readers, do not mean that another owner has what this one had.
            stolen |= not (claim.mode.shared and share.mode == READ.label)
    return Found.STOLEN if stolen else Found.GONE


def leave_queue(store: Store, now: int, claim: Claim) -> None:
    """Remove the claim's queue entry, and wake the next waiter: those behind a writer, or behind a claim of many
    permits, may have room now."""
    operations.leave(store, claim)
    operations.wake_first(store, now, claim.name)


def resize(store: Store, now: int, name: str, size: int) -> None:
    """Set the number of permits, and wake all waiters: some may have room now, and others never any more."""
    claim = Claim(name, "", 0.0, mode=permits(1, size))
    facts = _facts(store, now, SimpleAttempt(claim))
    for _ in range(ROUNDS):
        if store.write(statements.RESIZE, facts):
            break
        _agree_on_kind(store, now, claim, facts)
    else:
        raise RequestFailed(f"semaphore {name!r}: other clients use the name all the time", may_have_happened=False)
    try:
        for (socket_name,) in store.read(statements.SOCKETS, (name, store.boot, now)):
            if socket_name:
                send_wakeup(store.directory, socket_name)
    except (Contended, RequestFailed, EngineRefused):
        pass  # waiters re-poll


def inspect(store: Store, now: int, name: str) -> LockState:
    """The name as it is now, of whatever kind, for people."""
    row = operations.look(store, name)
    kind = None if row is None else marked_kind(row.owner)
    if row is None or kind is None:
        return inspection.inspect(store, now, name)
    shares = live_shares(store, now, name)
    size = next((size for (size,) in store.read(statements.SIZE, (name,))), 0) if kind is Kind.SEMAPHORE else 0
    waiters, queue = inspection.waiters(store, now, name)
    return LockState(
        name,
        tuple(_holder(share, now) for share in shares),
        waiters,
        row.token or None,
        max(((share.row.expires - now) / SECOND for share in shares), default=None),
        queue,
        kind.value,
        size or None,
        max(0, size - sum(share.permits for share in shares)) if size else None,
    )


def _holder(share: Share, now: int) -> Holder:
    row = share.row
    return Holder(
        row.owner or "",
        **descriptions.facts(descriptions.parsed(share.description)),
        since=share.since / SECOND,
        until=time.time() + (row.expires - now) / SECOND,
        token=row.token,
        count=share.permits,
        mode=share.mode,
    )


def page_of_names(store: Store, now: int, prefix: str, after: str | None) -> list[tuple[str, bool]]:
    """Some names that start with ``prefix`` and sort after ``after``, and whether each is held. Empty at the end."""
    return [
        (name, bool(live_shares(store, now, name)) if marked_kind(owner) is not None else held)
        for name, owner, held in inspection.page_of_names(store, now, prefix, after)
    ]


def break_(store: Store, now: int, name: str, token: int | None = None) -> bool:
    """Take the name, of whatever kind, from its holders; with ``token``, from those that have it.

    Each statement is conditional on an owner that was read, and an owner is never reused: no later holder is broken.
    """
    row = operations.look(store, name)
    if row is None or marked_kind(row.owner) is None:
        return operations.break_(store, now, name, token)
    holders = [share.row for share in live_shares(store, now, name) if token in (None, share.row.token)]
    if not holders:
        return False
    # Before: a reader that comes in between must not have the token of a writer that was broken.
    store.write(statements.RAISE_TOKEN, (time.time_ns() // 1000, name))
    broken = [holder for holder in holders if store.write(statements.BREAK, (name, holder.owner))]
    operations.report_break(store, name, {holder.process for holder in broken})
    operations.wake_first(store, now, name)
    return bool(broken)
