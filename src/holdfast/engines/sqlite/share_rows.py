"""Which kind a name has, and what is held of it, as stored."""

from __future__ import annotations

from typing import Final, NamedTuple

from holdfast.engines.base import Kind
from holdfast.engines.sqlite import share_statements as statements
from holdfast.engines.sqlite.store import Store
from holdfast.engines.sqlite.verdict import Row, Verdict, adopted, judge

_KINDS: Final = {mark: kind for kind, mark in statements.MARKS.items()}


class Share(NamedTuple):
    """What one claim holds of a read-write lock or a semaphore. ``mode``: ``Mode.label``. Times are in µs."""

    row: Row
    mode: str
    permits: int
    since: int
    description: bytes


def marked_kind(owner: str | None) -> Kind | None:
    """The kind that the owner of a row in the table of locks marks; None: it is that of a plain lock, or free."""
    return None if owner is None else _KINDS.get(owner)


def live_shares(store: Store, now: int, name: str) -> list[Share]:
    """What is held of ``name``, in the order of the grants. What has lapsed is deleted: a grant overlooks no row."""
    live = []
    dead: dict[str, bool] = {}  # each process is examined once

    def is_dead(process: str) -> bool:
        if process not in dead:
            dead[process] = store.is_dead(process)
        return dead[process]

    for found in store.read(statements.SHARES, (name,)):
        row = Row._make(found[:6])
        verdict = judge(row, now, store.boot, is_dead)
        if verdict is Verdict.LAPSED:
            # As it was judged: a renewal that came in between keeps it. Deleted, it cannot be brought back by one.
            store.write(statements.REMOVE_LAPSED, (name, row.owner, row.expires))
            continue
        if verdict is Verdict.FOREIGN:
            new = (adopted(store.boot), now + row.ttl)
            store.write(statements.ADOPT, (*new, name, row.owner, row.boot, row.expires))
            row = row._replace(boot=new[0], expires=new[1])
        live.append(Share(row, *found[6:]))
    return live
