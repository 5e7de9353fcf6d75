"""All statements on locks and queues. Each one is a transaction.

No statement has a RETURNING clause: Python would step it twice, and between the two steps (waiting for the GIL, or
interrupted by a signal) the process would stay *inside* the write transaction and stall every name of the file. So a
write is one step, its row count is the answer, and other values are read before or after it. The reads may be stale;
the writes are conditional, so a stale read can only make them change nothing.
"""

from __future__ import annotations

from typing import Final

#: The time since the epoch in µs, where no parameter has it.
NOW: Final = "CAST((julianday('now') - 2440587.5) * 86400000000 AS INTEGER)"

_COLUMNS: Final = "name, owner, process, boot, expires, ttl, token, since, description"
_TAKING: Final = """
    ON CONFLICT (name) DO UPDATE SET
        owner = excluded.owner, process = excluded.process, boot = excluded.boot, expires = excluded.expires,
        ttl = excluded.ttl, token = excluded.token, since = excluded.since, description = excluded.description
"""
_TAKEN: Final = """
    WHERE lock.token < excluded.token - ? AND (lock.owner IS NULL OR (lock.owner = ? AND lock.expires = ?))
"""
# A claim that has waited sets ``waiting``: there may be others behind it, and the wake-up that it has received was
# theirs, too. A trigger removes it from the queue (schema.py); if the row had been forgotten, its entry expires.
_WAITED: Final = ", waiting = 1"

# Take a name that is free, or whose owner and expiry are still those that were judged. The token must be larger than
# the stored one: the condition makes it max(last + 1, time) without reading it first.
_TAKE: Final = f"""
    INSERT INTO lock ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)
    {_TAKING}
"""  # noqa: S608  (constants only)
#: By whether the claim is in the queue.
TAKE: Final = (_TAKE + _TAKEN, _TAKE + _WAITED + _TAKEN)

# What nearly every TAKE is, with fewer parameters: for one token, by a claim that has not waited, of a free name. Or of
# one that this process has released by a note: the last parameter is that owner.
TAKE_FREE: Final = f"""
    INSERT INTO lock ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)
    {_TAKING} WHERE (lock.owner IS NULL OR lock.owner = ?) AND lock.token < excluded.token
"""  # noqa: S608  (constants only)

# The same, if the name was last granted to this process, for the same ttl and with the same description. It costs less:
# it need not look whether there is a row, and leaves out what has its value already. The token shows that there was no
# other grant since, the ttl that the row has not been the mark of a read-write lock or semaphore (schema.py), and the
# boot id that no other kernel has started its own clock for the row (verdict.py): it would compare the expiry to that.
# And no claim waits: so this grant may be released by a note, unless a waiter comes later and leaves a mark (notes.py).
TAKE_AGAIN: Final = """
    UPDATE lock SET owner = ?1, expires = ?2, token = ?3, since = ?3
    WHERE name = ?4 AND token = ?5 AND ttl = ?6 AND boot = ?8 AND waiting = 0 AND (owner IS NULL OR owner = ?7)
"""

# As TAKE, unless a live waiter is queued before this claim (any live waiter, if the claim is not in the queue).
_TAKE_IN_TURN: Final = f"""
    INSERT INTO lock ({_COLUMNS}) SELECT ?, ?, ?, ?, ?, ?, ?, ?, ?
    WHERE NOT EXISTS (
        SELECT 1 FROM queue WHERE name = ? AND boot = ? AND expires > ?
        AND seq < coalesce((SELECT seq FROM queue WHERE name = ? AND owner = ?), 9223372036854775807)
    )
    {_TAKING}
"""  # noqa: S608  (constants only)
TAKE_IN_TURN: Final = (_TAKE_IN_TURN + _TAKEN, _TAKE_IN_TURN + _WAITED + _TAKEN)

# Never shortens. An expiry written by another kernel is on another clock and is not compared; nor is that of a row
# without a ttl: it was handed over, and its lease begins with this.
EXTENDED: Final = """
    expires = CASE WHEN boot = ? AND ttl > 0 THEN max(expires, ?) ELSE ? END, boot = ?, ttl = max(ttl, ?)
"""
EXTEND: Final = f"UPDATE lock SET {EXTENDED} WHERE name = ? AND owner = ? AND process = ?"  # noqa: S608  (constants)

# The process is part of the condition: a forked child has the parent's claim in memory, but not its identity.
# RELEASE_OWN is nearly always enough. Its condition includes "no waiter to wake", which saves reading the queue
# afterwards: a waiter that enters the queue sets ``waiting`` in the same transaction (by a trigger), and reads the lock
# after that. If there is one, the first waiter is read, RELEASE_TO_ANY clears ``waiting``, and one wake-up is sent.
# Until the waiter that receives it has looked, and has set it again by AWAIT or with its grant, others take and release
# at full speed. If a waiter was overtaken then (AWAIT_NEXT), HAND_OVER gives the name to the first waiter.
RELEASE: Final = """
    UPDATE lock SET owner = NULL, since = ?, waiting = 0 WHERE name = ? AND owner = ? AND process = ?
"""
#: What was released by a note, also if a claim waits.
FREE: Final = "UPDATE lock SET owner = NULL, since = ? WHERE name = ? AND owner = ? AND process = ?"
RELEASE_UNAWAITED: Final = f"{FREE} AND waiting = 0"
#: The same for an owner that this process is known to have written.
RELEASE_OWN: Final = "UPDATE lock SET owner = NULL, since = ? WHERE name = ? AND owner = ? AND waiting = 0"
RELEASE_TO_ANY: Final = RELEASE + " AND waiting < 2"
AWAIT: Final = "UPDATE lock SET waiting = 1 WHERE name = ? AND waiting = 0"
#: Changes nothing if it was asked for already, or if no other claim than this one has the name.
AWAIT_NEXT: Final = "UPDATE lock SET waiting = 2 WHERE name = ? AND waiting < 2 AND owner <> ?"

# To the waiter that was read, if it still waits. It leaves the queue with this, by the trigger for ``waiting``.
FIRST_WAITER: Final = """
    SELECT coalesce((SELECT waiting FROM lock WHERE name = ?), 0), owner, process, bell, description, mode FROM queue
    WHERE name = ? AND boot = ? AND expires > ? ORDER BY seq LIMIT 1
"""
HAND_OVER: Final = """
    UPDATE lock SET owner = ?, process = ?, boot = ?, expires = ?, ttl = 0, token = max(token + 1, ?) + ?, since = ?,
        description = ?, waiting = 1
    WHERE name = ? AND owner = ? AND process = ? AND EXISTS (SELECT 1 FROM queue WHERE name = ? AND owner = ?)
"""
# The waiter begins its lease, with the token that it has read. Nothing else gives a row its ttl of 0.
ACCEPT: Final = """
    UPDATE lock SET expires = ?, ttl = ? WHERE name = ? AND owner = ? AND process = ? AND token = ? AND ttl = 0
"""

#: What was handed over to a claim that has not begun its lease and cannot be notified.
TAKE_BACK: Final = f"{RELEASE} AND ttl = 0"

# Give a held name to another owner. The process is that of this client or none (a ticket's): a forked child does not
# own the parent's claims. A row whose time is over is not held, also if no other claim has taken it yet.
TRANSFER: Final = """
    UPDATE lock SET owner = ?, process = ?, expires = CASE boot WHEN ? THEN max(expires, ?) ELSE ? END, boot = ?,
        ttl = ?, token = max(token + 1, ?) + ?, since = ?, description = ?
    WHERE name = ? AND owner = ? AND process IN (?, '') AND NOT (boot IN (?, ?) AND expires <= ?)
"""

BREAK: Final = "UPDATE lock SET owner = NULL, since = ?, token = max(token + 1, ?) WHERE name = ? AND owner = ?"

# Start the clock for a row of another kernel, whose clock and flock are not visible here (see verdict.py).
ADOPT: Final = """
    UPDATE lock SET boot = ?, expires = ? WHERE name = ? AND owner = ? AND boot = ? AND expires = ?
"""

LOOK: Final = "SELECT owner, process, boot, expires, ttl, token FROM lock WHERE name = ?"
LOOK_WAITING: Final = "SELECT waiting, owner, process, boot, expires, ttl, token FROM lock WHERE name = ?"
INSPECT: Final = """
    SELECT owner, process, boot, expires, ttl, token, since, description,
        (SELECT count(*) FROM queue WHERE name = lock.name AND boot = ? AND expires > ?)
    FROM lock WHERE name = ?
"""
QUEUE: Final = """
    SELECT owner, since, description, mode FROM queue WHERE name = ? AND boot = ? AND expires > ? ORDER BY seq LIMIT ?
"""
COUNT_WAITERS: Final = "SELECT count(*) FROM queue WHERE name = ? AND boot = ? AND expires > ?"
NAMES_FROM: Final = """
    SELECT name, owner, process, boot, expires, ttl, token FROM lock
    WHERE name >= ? AND name < ? AND owner IS NOT NULL ORDER BY name LIMIT 256
"""
NAMES_AFTER: Final = NAMES_FROM.replace("name >= ?", "name > ?")

ENQUEUE: Final = """
    INSERT INTO queue (name, seq, owner, process, boot, expires, bell, since, description, mode, permits)
    SELECT ?, coalesce(max(seq), 0) + 1, ?, ?, ?, ?, ?, ?, ?, ?, ? FROM queue WHERE name = ?
"""
STAY: Final = "UPDATE queue SET expires = ? WHERE name = ? AND owner = ?"
LEAVE: Final = "DELETE FROM queue WHERE name = ? AND owner = ?"
FIRST: Final = "SELECT owner, bell FROM queue WHERE name = ? AND boot = ? AND expires > ? ORDER BY seq LIMIT 1"
FIRST_AHEAD: Final = """
    SELECT process FROM queue WHERE name = ? AND boot = ? AND expires > ?
    AND seq < coalesce((SELECT seq FROM queue WHERE name = ? AND owner = ?), 9223372036854775807)
    ORDER BY seq LIMIT 1
"""
REMOVE_DEAD: Final = "DELETE FROM queue WHERE name = ? AND process = ?"

# Takes SQLite's write lock and changes nothing.
PING: Final = "UPDATE lock SET owner = owner WHERE name IS NULL"

# Batches, each one statement. A shorter batch is filled up by repeating its last claim.
BATCH: Final = 128
GIVEN: Final = f"WITH given (name, owner) AS (VALUES {', '.join(['(?, ?)'] * BATCH)})"


def ours(table: str) -> str:
    """The rows of the batch that this process holds."""
    return f"""
        SELECT {table}.rowid FROM given CROSS JOIN {table}
        WHERE {table}.name = given.name AND {table}.owner = given.owner AND {table}.process = ?
    """  # noqa: S608  (constants only)


def count_ours(table: str) -> str:
    return f"{GIVEN} SELECT owner FROM {table} WHERE rowid IN ({ours(table)})"  # noqa: S608  (constants only)


def extend_all(table: str) -> str:
    return f"{GIVEN} UPDATE {table} SET {EXTENDED} WHERE rowid IN ({ours(table)})"  # noqa: S608  (constants only)


COUNT_OURS: Final = count_ours("lock")
EXTEND_ALL: Final = extend_all("lock")
RELEASE_ALL: Final = f"""
    {GIVEN}
    UPDATE lock SET owner = NULL, since = {NOW}, waiting = EXISTS (SELECT 1 FROM queue WHERE name = lock.name)
    WHERE rowid IN ({ours("lock")})
"""  # noqa: S608  (constants only)
AWAITED: Final = f"""
    {GIVEN}
    SELECT DISTINCT name FROM given WHERE EXISTS (SELECT 1 FROM queue WHERE name = given.name)
"""  # noqa: S608  (constants only)

# Housekeeping. Every step is short: neither a transaction nor an opening may grow with the table, since it stalls every
# name. So housekeeping processes the table in slices of a fixed number of rows.
REMOVE_DEAD_EVERYWHERE: Final = "DELETE FROM queue WHERE process = ?"
FORGET_QUEUES: Final = "DELETE FROM queue WHERE boot <> ?"
LAST_ROW: Final = "SELECT coalesce(max(rowid), 0) FROM lock"
_FOREIGN: Final = "owner IS NOT NULL AND boot <> :boot AND boot <> :adopted"
_FORGOTTEN: Final = """
    since < :before AND (owner IS NULL OR ((boot = :boot OR boot = :adopted) AND expires < :now))
"""
SLICE: Final = f"""
    SELECT count(*), max(rowid), total({_FOREIGN}), total({_FORGOTTEN})
    FROM (SELECT rowid, owner, boot, expires, since FROM lock WHERE rowid > :after ORDER BY rowid LIMIT :rows)
"""  # noqa: S608  (constants only)
ADOPT_SLICE: Final = f"""
    UPDATE lock SET boot = :adopted, expires = :now + ttl WHERE rowid > :after AND rowid <= :end AND {_FOREIGN}
"""  # noqa: S608  (constants only)
FORGET_SLICE: Final = f"""
    DELETE FROM lock WHERE rowid > :after AND rowid <= :end AND {_FORGOTTEN}
"""  # noqa: S608  (constants only)
CHECKPOINT: Final = "PRAGMA wal_checkpoint(PASSIVE)"
REMEMBERED: Final = "SELECT value FROM meta WHERE key = ?"
REMEMBER: Final = "INSERT OR REPLACE INTO meta (key, value) VALUES (?, ?)"
