"""What kazoo runs on: one thread for each session, which waits, sends, receives and tells.

kazoo's own handler has three, and hops between them for each answer. Ours has one, since nothing that it calls back
ever blocks: an answer sets an event of the asker's runtime, thread or event loop.
"""

from __future__ import annotations

import logging
import select
import socket
import ssl
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

from kazoo.handlers.threading import SequentialThreadingHandler

from holdfast._runtime.clock import now

#: Hosts are tried one after the other: one that is out of reach must leave time for the others.
CONNECT_WITHIN: Final = 1.0
#: What is to be done soon, but not at the cost of what is done now, waits for this long.
MOMENT: Final = 0.1
#: How often the thread looks for what is due after a moment, before it waits for long.
_LOOKS: Final = 3
_LOOK_AGAIN: Final = 0.01

_log: Final = logging.getLogger("holdfast.zookeeper")


class NoContext(Exception):
    """The files for TLS cannot be used: no attempt will ever succeed, so the thread ends with this."""


class _Flag:
    """In place of a ``threading.Event``. That has a lock, which a signal in the middle of its ``set`` or ``clear`` may
    leave locked: the next ``set`` would wait for ever. kazoo looks at its events, and waits for one that is set."""

    __slots__ = ("_flag",)

    def __init__(self) -> None:
        self._flag = False

    def set(self) -> None:
        self._flag = True

    def clear(self) -> None:
        self._flag = False

    def is_set(self) -> bool:
        return self._flag

    def wait(self, timeout: float | None = None) -> bool:
        until = None if timeout is None else now() + timeout
        while not self._flag and (until is None or now() < until):
            time.sleep(_LOOK_AGAIN)
        return self._flag


class Handler(SequentialThreadingHandler):  # type: ignore[misc]
    """``requests_wait``: whether any are to be sent. ``pinged``: whether a ping was sent and is not answered yet.
    ``attend``: called on the thread before it waits, and three times, after ``MOMENT`` each, while it does. ``on_end``:
    called on the thread, as the last thing it does."""

    def __init__(
        self,
        requests_wait: Callable[[], bool],
        pinged: Callable[[], bool],
        attend: Callable[[], None],
        on_end: Callable[[], None],
    ) -> None:
        super().__init__()
        self.longest_pause = CONNECT_WITHIN  #: between two words to the servers
        self.trouble: Exception | None = None  #: why the last attempt to connect has failed
        self.attempts: list[Exception | None] = []  #: to connect, in this round through the hosts, and their failures
        self._requests_wait = requests_wait
        self._pinged = pinged
        self._attend = attend
        self._on_end = on_end
        self._context: ssl.SSLContext | None = None
        self._bell: socket.socket | None = None
        self._ringer: socket.socket | None = None

    # -- the thread ------------------------------------------------------------------------------------------------

    def start(self) -> None:
        self._running = True  # no workers

    def stop(self) -> None:
        self._running = False

    def spawn(self, main: Callable[[], None], *arguments: Any, **keywords: Any) -> threading.Thread:
        def run() -> None:
            try:
                main(*arguments, **keywords)
            except Exception as error:
                self.trouble = error
                _log.debug("a session's thread has ended", exc_info=True)
            finally:
                self._on_end()

        thread = threading.Thread(target=run, name="holdfast-zookeeper", daemon=True)
        thread.start()
        return thread

    def event_object(self) -> _Flag:
        return _Flag()

    def dispatch_callback(self, callback: Any) -> None:
        callback.func(*callback.args)

    # -- its bell --------------------------------------------------------------------------------------------------

    def create_socket_pair(self) -> tuple[socket.socket, socket.socket]:
        self._bell, self._ringer = socket.socketpair()
        self._ringer.setblocking(False)
        return self._bell, self._ringer

    def ring(self) -> None:
        """A request is waiting to be sent. Never blocks: safe on an event loop and in ``__del__``."""
        ringer = self._ringer
        if ringer is not None:
            try:
                ringer.send(b"\0")
            except OSError:
                pass  # full, so it is ringing; or the thread has ended

    # -- waiting ---------------------------------------------------------------------------------------------------

    def select(
        self, readers: Sequence[Any], writers: Sequence[Any], _: object, timeout: float | None = None
    ) -> tuple[list[Any], list[Any], list[Any]]:
        """Which can be read or written. kazoo has it in its main loop with the bell, and elsewhere without."""
        if self._bell in readers:
            self._attend()
            # kazoo waits for up to 0.4 s more than it means to, which may be longer than a short session lives. If it
            # has pinged, it takes the end of this wait for the end of the connection: that deserves more patience.
            pause = self.longest_pause
            timeout = 2 * pause if self._pinged() else min(pause, pause if timeout is None else timeout)
            # What TLS has read ahead makes no socket readable.
            if ahead := [each for each in readers if isinstance(each, ssl.SSLSocket) and each.pending()]:
                return ahead + _ready([self._bell], (), 0.0)[0], [], []
            if self._requests_wait() and self._bell not in (found := _ready(readers, (), 0.0))[0]:
                if found[0]:
                    return *found, []
                # kazoo sends one request for each ring. A caller was interrupted between the request and the ring, or
                # there were too many rings for the pipe: without this, each request would wait for the next one.
                self.ring()
            # A caller notes its grant after this thread has given it the answer: at the first look it may not be due.
            for _look in range(_LOOKS):
                if timeout > MOMENT:
                    if (found := _ready(readers, writers, MOMENT)) != ([], []):
                        return *found, []
                    self._attend()
                    timeout -= MOMENT
        return *_ready(readers, writers, timeout), []

    # -- connecting ------------------------------------------------------------------------------------------------

    def create_connection(
        self, address: tuple[str, int], hostname: str, timeout: float, use_ssl: bool, **tls: Any
    ) -> socket.socket:
        """Connected, with TLS if asked. Unlike kazoo's, it does not give a black hole the whole session's time."""
        if use_ssl and self._context is None:
            self._context = tls_context(**tls)
        try:
            connected = socket.create_connection(address, min(timeout, CONNECT_WITHIN))
            connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self._context is not None:
                connected = self._context.wrap_socket(connected, server_hostname=hostname)
        except OSError as error:
            self.trouble = error
            self.attempts.append(error)
            raise
        self.attempts.append(None)
        return connected


def _ready(readers: Sequence[Any], writers: Sequence[Any], timeout: float | None) -> tuple[list[Any], list[Any]]:
    poll = select.poll()
    for reader in readers:
        poll.register(reader, select.POLLIN)
    for writer in writers:
        poll.register(writer, select.POLLOUT)
    found = {fileno for fileno, _ in poll.poll(None if timeout is None else timeout * 1000.0)}
    return [each for each in readers if each.fileno() in found], [each for each in writers if each.fileno() in found]


def tls_context(
    *, ca: str | None, certfile: str | None, keyfile: str | None, keyfile_password: str | None, verify_certs: bool,
    check_hostname: bool,
) -> ssl.SSLContext:  # fmt: skip
    """As kazoo's settings say. NoContext if their files cannot be used."""
    try:
        context = ssl.create_default_context(cafile=ca)
        if certfile and keyfile:
            context.load_cert_chain(certfile, keyfile, keyfile_password)
    except OSError as error:
        raise NoContext(
            f"{error.strerror or type(error).__name__} (ca, certfile, keyfile, keyfile_password)"
        ) from error
    context.check_hostname = check_hostname
    if not verify_certs:
        context.verify_mode = ssl.CERT_NONE
    return context
