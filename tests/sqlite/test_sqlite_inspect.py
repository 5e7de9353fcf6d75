"""Holders and waiters as recorded in the file, also in a file created by an earlier version of holdfast."""

from __future__ import annotations

import contextlib
import sqlite3
import time
from collections.abc import Callable

from holdfast._runtime import clock
from holdfast._runtime.blocking import run
from holdfast.engines.base import Found, Granted, Waiter
from holdfast.engines.sqlite import statements
from holdfast.engines.sqlite.session import SqliteSession
from tests.sqlite.conftest import TIMEOUT, MakeSession, Worker
from tests.sqlite.worker import make_attempt

#: The queue table of version 0.1, and its statement that enters the queue.
_OLD_QUEUE = """
    DROP TRIGGER left_queue;
    DROP TABLE queue;
    CREATE TABLE queue (
        name TEXT, seq INTEGER, owner TEXT NOT NULL, process TEXT NOT NULL, boot TEXT NOT NULL,
        expires INTEGER NOT NULL, bell TEXT NOT NULL, PRIMARY KEY (name, seq)
    ) WITHOUT ROWID;
    CREATE TRIGGER queued AFTER INSERT ON queue BEGIN UPDATE lock SET waiting = 1 WHERE name = NEW.name; END;
"""
_OLD_ENQUEUE = """
    INSERT INTO queue (name, seq, owner, process, boot, expires, bell)
    SELECT ?, coalesce(max(seq), 0) + 1, ?, ?, ?, ?, ? FROM queue WHERE name = ?
"""
_DESCRIPTION = b'{"host":"h","pid":7,"program":"p","label":"l","thread":"t"}'


def _wait(session: SqliteSession, description: bytes = _DESCRIPTION) -> str:
    attempt = make_attempt("job")
    attempt.claim = attempt.claim._replace(description=description)
    run(session.contender(attempt, TIMEOUT).wait(clock.now() + 0.01))
    return attempt.owner


def test_waiters_are_listed_in_order_with_their_descriptions(session: SqliteSession) -> None:
    run(session.acquire(make_attempt("job"), TIMEOUT))
    owners = [_wait(session), _wait(session, b"not JSON")]
    first, second = run(session.inspect("job", TIMEOUT)).queue
    assert first == Waiter(owners[0], "h", 7, "t", "p", "l", first.since)
    assert second == Waiter(owners[1], since=second.since)
    assert first.since is not None
    assert second.since is not None
    assert time.time() - 60 < first.since <= second.since


def test_block_of_tokens_is_shown_by_its_first_and_broken_by_any(session: SqliteSession) -> None:
    for description in (b"{}", _DESCRIPTION):
        for place, broken in ((0, True), (16, True), (17, False), (-1, False)):
            attempt = make_attempt("job")
            attempt.claim = attempt.claim._replace(tokens=17, description=description)
            granted = run(session.acquire(attempt, TIMEOUT))
            assert isinstance(granted, Granted)
            state = run(session.inspect("job", TIMEOUT))
            (holder,) = state.holders
            assert (holder.token, state.token) == (granted.token - 16, granted.token)
            assert holder.host == ("h" if description == _DESCRIPTION else None)
            assert run(session.break_("job", TIMEOUT, granted.token - 16 + place)) is broken
            assert run(session.release(attempt, TIMEOUT)) is (Found.GONE if broken else Found.OURS)


def test_file_of_an_earlier_version_works_with_both_versions(
    session: SqliteSession, start_worker: Callable[[], Worker], path: str
) -> None:
    """Another process adds the columns under a connection that knows only the old table and keeps using it."""
    run(session.acquire(make_attempt("job"), TIMEOUT))
    store = session.store(clock.now())
    expires = int((clock.now() + 60) * 1_000_000)
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as old:
        old.executescript(_OLD_QUEUE)
        old.execute(_OLD_ENQUEUE, ("job", "old:1", store.process, store.boot, expires, "", "job"))
        assert start_worker().ask(do="acquire", name="another")["token"]
        old.execute(_OLD_ENQUEUE, ("job", "old:2", store.process, store.boot, expires, "", "job"))
        owner = _wait(session)
        state = run(session.inspect("job", TIMEOUT))
        assert [waiter.owner for waiter in state.queue] == ["old:1", "old:2", owner]
        assert state.queue[:2] == (Waiter("old:1"), Waiter("old:2"))
        assert state.queue[2].label == "l"
        assert old.execute("SELECT count(*) FROM sqlite_schema WHERE name = 'left_queue'").fetchall() == [(1,)]
        assert old.execute(statements.LEAVE, ("job", "old:1")).rowcount == 1
        assert old.execute("PRAGMA user_version").fetchall() == [(1,)]


def test_file_with_the_new_columns_is_opened_unchanged(make_session: MakeSession, path: str) -> None:
    first = make_session()
    run(first.acquire(make_attempt("job"), TIMEOUT))
    with contextlib.closing(sqlite3.connect(path)) as reader:
        before = reader.execute("PRAGMA schema_version").fetchall()
        run(first.close())
        second = make_session()
        run(second.ping(TIMEOUT))
        assert reader.execute("PRAGMA schema_version").fetchall() == before
