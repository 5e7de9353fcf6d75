"""What people ask about the names of a file: their state, and which of them are held."""

from __future__ import annotations

import sys
import time

from holdfast.engines import descriptions
from holdfast.engines.base import MOST_WAITERS, Holder, LockState, RequestFailed, Waiter
from holdfast.engines.sqlite import statements
from holdfast.engines.sqlite.faults import Contended
from holdfast.engines.sqlite.operations import SECOND, adopt, judge_lock, tokens_of
from holdfast.engines.sqlite.store import Store
from holdfast.engines.sqlite.verdict import Row, Verdict, adopted
from holdfast.errors import EngineRefused


def inspect(store: Store, now: int, name: str) -> LockState:
    """The name as it is now, for people."""
    rows = store.read(statements.INSPECT, (store.boot, now, name))
    if not rows:
        return LockState(name)
    row, (since, description, waiters) = Row._make(rows[0][:6]), rows[0][6:]
    queue = _queue(store, now, name) if waiters else ()
    owner = row.owner
    if owner is None or judge_lock(store, now, name, row) is Verdict.LAPSED:
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
        token=row.token - tokens_of(about) + 1,
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


def _adopt_seen(store: Store, now: int, name: str, row: Row) -> Row:
    """Start the clock of a foreign row that is only inspected, so that it does not stay held forever. Best effort."""
    try:
        adopt(store, now, name, row)
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
    verdict = judge_lock(store, now, name, row)
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
