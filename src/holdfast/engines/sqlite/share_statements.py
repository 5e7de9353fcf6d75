"""All statements on read-write locks and semaphores. As in statements.py: each one is a transaction.

A grant overlooks no row, also not one whose time is over: a renewal that has read the clock before that moment, and was
frozen, would bring it back. Rows that may be ignored are deleted before, as they were judged.
"""

from __future__ import annotations

from typing import Final

from holdfast.engines.base import READ, WRITE, Kind, permits
from holdfast.engines.sqlite.statements import EXTENDED, GIVEN, count_ours, extend_all, ours

#: The owner of a name's row in the table of locks, while it is of another kind.
MARKS: Final = {Kind.RWLOCK: "#rwlock", Kind.SEMAPHORE: "#semaphore"}

# The name is free or of this kind, or a plain lock whose owner and expiry are still those that were judged.
_OF_THIS_KIND: Final = """
    NOT EXISTS (
        SELECT 1 FROM lock WHERE name = :name AND owner IS NOT NULL AND owner <> :mark
        AND NOT (owner = :victim AND expires = :seen)
    )
"""
# Live requests before this one that it must wait for; all live ones, if it is not in the queue. Readers do not wait for
# readers.
_BEFORE: Final = """
    FROM queue WHERE name = :name AND boot = :boot AND expires > :now AND NOT (mode = 'read' AND :mode = 'read')
    AND seq < coalesce((SELECT seq FROM queue WHERE name = :name AND owner = :owner), 9223372036854775807)
"""
_IN_TURN: Final = f"NOT EXISTS (SELECT 1 {_BEFORE})"
_COUNTER: Final = "(SELECT token FROM lock WHERE name = :name)"
_LARGER: Final = f"max(coalesce({_COUNTER}, 0) + 1, :wall)"


def _grant(token: str, condition: str) -> str:
    return f"""
        INSERT INTO share (name, owner, mode, permits, process, boot, expires, ttl, token, since, description)
        SELECT :name, :owner, :mode, :permits, :process, :boot, :until, :ttl, {token}, :wall, :description
        WHERE {_OF_THIS_KIND} AND {condition}
        ON CONFLICT (name, owner) DO NOTHING
    """


#: By ``Mode.label``. A reader has the token of the last write. A read inside the caller's own write (``under``) waits
#: for no other.
GRANT: Final = {
    READ.label: _grant(
        f"coalesce(nullif({_COUNTER}, 0), :wall)",
        f"""(
            EXISTS (
                SELECT 1 FROM share WHERE name = :name AND owner = :under AND mode = 'write' AND process = :process
            )
            OR (NOT EXISTS (SELECT 1 FROM share WHERE name = :name AND mode = 'write') AND {_IN_TURN})
        )""",  # noqa: S608  (constants only)
    ),
    WRITE.label: _grant(
        _LARGER,
        f"NOT EXISTS (SELECT 1 FROM share WHERE name = :name) AND {_IN_TURN}",  # noqa: S608  (constants only)
    ),
    permits(1, 0).label: _grant(
        _LARGER,
        f"""EXISTS (
            SELECT 1 FROM semaphore WHERE name = :name AND (
                size = 0
                OR size - (SELECT coalesce(sum(permits), 0) FROM share WHERE name = :name) >= :permits
            )
        ) AND {_IN_TURN}""",  # noqa: S608  (constants only)
    ),
}
GRANTED: Final = """
    SELECT token, (SELECT size FROM semaphore WHERE name = :name), EXISTS (SELECT 1 FROM queue WHERE name = :name)
    FROM share WHERE name = :name AND owner = :owner
"""
FIRST_BEFORE: Final = f"SELECT process {_BEFORE} ORDER BY seq LIMIT 1"
# What surrounds a claim: the owner in the table of locks, the size of the semaphore, whether the claim is in the
# queue, and the process of the first request before it.
AROUND: Final = f"""
    SELECT (SELECT owner FROM lock WHERE name = :name), (SELECT size FROM semaphore WHERE name = :name),
        EXISTS (SELECT 1 FROM queue WHERE name = :name AND owner = :owner), ({FIRST_BEFORE})
"""  # noqa: S608  (constants only)

SHARES: Final = """
    SELECT owner, process, boot, expires, ttl, token, mode, permits, since, description FROM share WHERE name = ?
    ORDER BY rowid
"""
EXTEND: Final = f"UPDATE share SET {EXTENDED} WHERE name = ? AND owner = ? AND process = ?"  # noqa: S608  (constants)
RELEASE: Final = "DELETE FROM share WHERE name = ? AND owner = ? AND process = ?"
# The first one is nearly always enough. Where it is, no request waits, and the queue need not be read: a request that
# enters it later looks at what is held after that.
RELEASE_UNAWAITED: Final = f"{RELEASE} AND NOT EXISTS (SELECT 1 FROM queue WHERE name = share.name)"  # noqa: S608
REMOVE_LAPSED: Final = "DELETE FROM share WHERE name = ? AND owner = ? AND expires = ?"
ADOPT: Final = "UPDATE share SET boot = ?, expires = ? WHERE name = ? AND owner = ? AND boot = ? AND expires = ?"
BREAK: Final = "DELETE FROM share WHERE name = ? AND owner = ?"
RAISE_TOKEN: Final = "UPDATE lock SET token = max(token + 1, ?) WHERE name = ?"
COUNT_OURS: Final = count_ours("share")
EXTEND_ALL: Final = extend_all("share")
RELEASE_ALL: Final = f"{GIVEN} DELETE FROM share WHERE rowid IN ({ours('share')})"  # noqa: S608  (constants only)

SIZE: Final = "SELECT size FROM semaphore WHERE name = ?"
CREATE: Final = f"""
    INSERT INTO semaphore (name, size, used) SELECT :name, :size, :wall WHERE {_OF_THIS_KIND}
    ON CONFLICT (name) DO NOTHING
"""
RESIZE: Final = CREATE.replace("DO NOTHING", "DO UPDATE SET size = excluded.size, used = excluded.used")
SOCKETS: Final = "SELECT bell FROM queue WHERE name = ? AND boot = ? AND expires > ? ORDER BY seq"

# Housekeeping.
LAST_SHARE: Final = "SELECT coalesce(max(rowid), 0) FROM share"
_FOREIGN: Final = "boot <> :boot AND boot <> :adopted"
_LAPSED: Final = "(boot = :boot OR boot = :adopted) AND expires < :now - 60000000"
SLICE: Final = f"""
    SELECT count(*), max(rowid), total({_FOREIGN}), total({_LAPSED})
    FROM (SELECT rowid, boot, expires FROM share WHERE rowid > :after ORDER BY rowid LIMIT :rows)
"""  # noqa: S608  (constants only)
ADOPT_SLICE: Final = f"""
    UPDATE share SET boot = :adopted, expires = :now + ttl WHERE rowid > :after AND rowid <= :end AND {_FOREIGN}
"""  # noqa: S608  (constants only)
REMOVE_SLICE: Final = f"""
    DELETE FROM share WHERE rowid > :after AND rowid <= :end AND {_LAPSED}
"""  # noqa: S608  (constants only)
LAST_SEMAPHORE: Final = "SELECT coalesce(max(rowid), 0) FROM semaphore"
_UNUSED: Final = """
    used < :before AND NOT EXISTS (SELECT 1 FROM share WHERE name = semaphore.name)
    AND NOT EXISTS (SELECT 1 FROM queue WHERE name = semaphore.name)
"""
SEMAPHORES: Final = f"""
    SELECT count(*), max(rowid), total({_UNUSED})
    FROM (SELECT rowid, name, used FROM semaphore WHERE rowid > :after ORDER BY rowid LIMIT :rows) AS semaphore
"""  # noqa: S608  (constants only)
FORGET_SEMAPHORES: Final = f"""
    DELETE FROM semaphore WHERE rowid > :after AND rowid <= :end AND {_UNUSED}
"""  # noqa: S608  (constants only)
