"""The stores of this process, one per file, and how they are handled in a fork."""

from __future__ import annotations

import os
import threading
from typing import Final

from holdfast._runtime import clock
from holdfast._runtime.exit_hooks import after_release_at_exit
from holdfast.engines.sqlite import paths
from holdfast.engines.sqlite.store import Store

# Re-entrant for the same reason as a store's own lock. Lock order: this one, then a store's.
_lock = threading.RLock()
_current: Final[dict[str, Store]] = {}  # by resolved path
_former: Final[set[str]] = set()  # identities that this process had in stores that were displaced
_open: Final[set[Store]] = set()  # these, and displaced ones that still have users
_dropped: Final[set[tuple[Store, object]]] = set()  # users that became garbage without giving up their use


def opening() -> threading.RLock:
    """The lock for opening and closing. Replaced after a fork, because another thread may have held it then."""
    return _lock


def open_store(path: str, token_ttl: float | None, user: object) -> Store:
    """The store for ``path``; opened for its first user. It is closed when each ``user`` has called
    :func:`close_store`."""
    resolved = paths.resolve(path)
    with _lock:
        _close_for_dropped()
        store, suspect = _current.get(resolved), False
        if store is not None and store.is_displaced(clock.now()):
            # It has closed its files. Before that, no other connection to them may be opened in this process: SQLite
            # would share the old index between both.
            _former.add(store.process)
            suspect = store.suspect
            store = None
        if store is None:
            store = _current[resolved] = Store(resolved, token_ttl, _former, suspect=suspect)
            _open.add(store)
        store.users.add(user)
        return store


def close_store(store: Store, user: object) -> None:
    """Give up the use of the store. The last user closes it. Twice does no harm: a signal may interrupt every step."""
    with _lock:
        _close_for_dropped()
        _give_up(store, user)


def drop_user(store: Store, user: object) -> None:
    """A user became garbage. The next user that opens or closes a store gives up its use. Called from ``__del__``: no
    lock, no I/O."""
    _dropped.add((store, user))


def _close_for_dropped() -> None:
    for each in list(_dropped):
        _give_up(*each)
        _dropped.discard(each)


def _give_up(store: Store, user: object) -> None:
    if store not in _open:
        return  # closed, or the parent's, before a fork
    store.users.discard(user)
    if not store.users:
        _close(store)


def _close(store: Store) -> None:
    if _current.get(store.path) is store:
        del _current[store.path]
    store.close()
    _open.discard(store)  # last: if the end of the interpreter stops this thread half-way, _at_exit closes the store


def _at_exit() -> None:
    """Close the stores of clients that were not closed: the garbage collector would warn about open sockets, and other
    processes would have to remove the files."""
    with _lock:
        for store in list(_open):
            _close(store)


_quiesced: Final[list[Store]] = []


def _before_fork() -> None:
    # A connection must not cross a fork: a child with the descriptors of another thread's transaction would corrupt
    # the file, or drop its POSIX locks. Nothing here waits longer than one statement takes.
    _lock.acquire()
    for store in _open:
        store.quiesce()
        _quiesced.append(store)


def _after_fork_in_parent() -> None:
    while _quiesced:
        _quiesced.pop().resume()
    _lock.release()


def _after_fork_in_child() -> None:
    global _lock
    _lock = threading.RLock()
    for store in _open:
        store.disown()
    _quiesced.clear()
    _dropped.clear()
    _current.clear()
    _former.clear()
    _open.clear()


after_release_at_exit(_at_exit)
os.register_at_fork(before=_before_fork, after_in_parent=_after_fork_in_parent, after_in_child=_after_fork_in_child)
