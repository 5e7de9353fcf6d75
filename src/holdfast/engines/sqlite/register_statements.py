"""All statements on registers. As in statements.py: each one is a transaction, and its row count is the answer.

The id of a waiter has letters, digits and hyphens only. A listener for all changes has a row too: its id is ``*`` and
the name of its socket, so it sorts before all waiters.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

#: The first character of the id of a listener for all changes.
ALL_CHANGES: Final = "*"
_AFTER_ALL_CHANGES: Final = "+"

# Remember the guard, unless a later one was seen, or an equal token of another owner.
LOAD: Final = """
    INSERT INTO register (name, part, version, token, owner, used, durable, queue, value)
    VALUES (?, ?, 0, ?, ?, ?, ?, '', x'')
    ON CONFLICT (name, part) DO UPDATE SET
        token = excluded.token, owner = excluded.owner, used = excluded.used, durable = max(durable, excluded.durable)
    WHERE register.token < excluded.token OR (register.token = excluded.token AND register.owner = excluded.owner)
"""

_UNCHANGED: Final = "name = ? AND part = ? AND token = ? AND owner = ? AND version = ?"
STORE: Final = f"""
    UPDATE register SET version = version + 1, used = ?, queue = coalesce(?, queue), value = coalesce(?, value)
    WHERE {_UNCHANGED}
"""  # noqa: S608  (constants only)
_PRESENT_UNTIL: Final = """
    ON CONFLICT (name, part, waiter) DO UPDATE SET
        process = excluded.process, boot = excluded.boot, expires = excluded.expires
"""
# Run before the store that it belongs to, and only if that will be accepted: a waiter that was in the queue and not
# present for a moment could be dropped from the queue in that moment.
JOIN: Final = f"""
    INSERT INTO register_waiter (name, part, waiter, process, boot, expires)
    SELECT ?, ?, ?, ?, ?, ? WHERE EXISTS (SELECT 1 FROM register WHERE {_UNCHANGED})
    {_PRESENT_UNTIL}
"""  # noqa: S608  (constants only)
#: So many waiters at once: six parameters each, of which old versions of SQLite allow 999.
MOST_PRESENT: Final = 150


@lru_cache(maxsize=MOST_PRESENT)
def present(count: int) -> str:
    """For ``count`` waiters."""
    return f"""
        INSERT INTO register_waiter (name, part, waiter, process, boot, expires)
        VALUES {", ".join(["(?, ?, ?, ?, ?, ?)"] * count)}
        {_PRESENT_UNTIL}
    """  # noqa: S608  (constants only)


# Two statements: the first one creates the register. The guard of a register that no hold has loaded is below all.
CREATE: Final = """
    INSERT OR IGNORE INTO register (name, part, version, token, owner, used, durable, queue, value)
    VALUES (?, ?, 0, -1, '', ?, ?, '', x'')
"""
SWAP: Final = """
    UPDATE register SET version = version + 1, used = ?, durable = max(durable, ?), value = ?
    WHERE name = ? AND part = ? AND version = ?
"""

CONTENT: Final = "SELECT token, owner, version, queue, value FROM register WHERE name = ? AND part = ?"
WAITERS: Final = f"""
    SELECT waiter, process FROM register_waiter
    WHERE name = ? AND part = ? AND waiter >= '{_AFTER_ALL_CHANGES}' AND boot = ? AND expires > ?
"""  # noqa: S608  (constants only)
QUEUES: Final = "SELECT part, queue FROM register WHERE name = ? AND queue <> ''"
QUEUE: Final = "SELECT queue FROM register WHERE name = ? AND part = ?"

# A waiter that listens does not become present by it, and one that is present stays so.
LISTEN: Final = """
    INSERT INTO register_waiter (name, part, waiter, process, boot, expires, socket) VALUES (?, ?, ?, ?, ?, ?, ?)
    ON CONFLICT (name, part, waiter) DO UPDATE SET
        process = excluded.process, boot = excluded.boot, socket = excluded.socket,
        expires = CASE boot WHEN excluded.boot THEN max(expires, excluded.expires) ELSE excluded.expires END
"""
SOCKET: Final = "SELECT waiter, socket FROM register_waiter WHERE name = ? AND part = ? AND waiter = ?"
SOCKETS_FOR_ALL_CHANGES: Final = f"""
    SELECT waiter, socket FROM register_waiter
    WHERE name = ? AND part = ? AND waiter >= '{ALL_CHANGES}' AND waiter < '{_AFTER_ALL_CHANGES}'
"""  # noqa: S608  (constants only)
STOP_LISTENING: Final = """
    UPDATE register_waiter SET socket = '' WHERE name = ? AND part = ? AND waiter = ? AND socket = ?
"""
STOP_LISTENING_TO_ALL: Final = "DELETE FROM register_waiter WHERE name = ? AND part = ? AND waiter = ?"

# Housekeeping.
REMOVE_DEAD_WAITERS: Final = "DELETE FROM register_waiter WHERE process = ?"
FORGET_WAITERS: Final = "DELETE FROM register_waiter WHERE boot <> ?"
LAST_REGISTER: Final = "SELECT coalesce(max(rowid), 0) FROM register"
# Registers with user data stay for ever, others as long as a waiter is present.
_FORGOTTEN: Final = """
    NOT durable AND used < :before AND NOT EXISTS (
        SELECT 1 FROM register_waiter AS waiting
        WHERE waiting.name = register.name AND waiting.part = register.part AND boot = :boot AND expires > :now
    )
"""
SLICE: Final = f"""
    SELECT count(*), max(rowid), total({_FORGOTTEN})
    FROM (SELECT rowid, name, part, durable, used FROM register WHERE rowid > :after ORDER BY rowid LIMIT :rows)
        AS register
"""  # noqa: S608  (constants only)
FORGET_SLICE: Final = f"""
    DELETE FROM register WHERE rowid > :after AND rowid <= :end AND {_FORGOTTEN}
"""  # noqa: S608  (constants only)
