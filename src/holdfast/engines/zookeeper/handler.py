"""kazoo's handler: one thread per session, which waits, sends, receives and runs callbacks.

kazoo's own handler has three threads and switches between them for each answer. Ours has one, since its callbacks never
block: an answer sets an event of the caller's runtime (a thread or an event loop).
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
from holdfast._runtime.threads import start_daemon

#: Hosts are tried one after the other: an unreachable one must leave time for the others.
CONNECT_WITHIN: Final = 1.0
#: Work that is not urgent (``attend``) is delayed by this long, so that it does not slow down requests.
MOMENT: Final = 0.1
#: How often the thread calls ``attend`` before a long wait.
_LOOKS: Final = 3
_LOOK_AGAIN: Final = 0.01

_log: Final = logging.getLogger("holdfast.zookeeper")


class TlsSetupFailed(Exception):
    """Raised when the files for TLS cannot be used: no attempt can succeed, so the session's thread ends."""


class _Flag:
    """Replaces ``threading.Event``, whose lock stays locked if a signal interrupts ``set`` or ``clear``: the next
    ``set`` would then wait forever. kazoo polls its events, and only waits for one that is set."""

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
    """``requests_wait``: whether requests are queued for sending. ``pinged``: whether a ping is unanswered. ``attend``:
    called on the thread before it waits, up to three times while it waits, ``MOMENT`` apart, and then after as many
    seconds as it has answered. ``on_end``: called on the thread when it ends."""

    def __init__(
        self,
        requests_wait: Callable[[], bool],
        pinged: Callable[[], bool],
        attend: Callable[[], float],
        on_end: Callable[[], None],
    ) -> None:
        super().__init__()
        self.longest_pause = CONNECT_WITHIN  #: between two messages to the servers
        self.last_error: Exception | None = None  #: why the last attempt to connect failed
        self.attempts: list[Exception | None] = []  #: the outcome of each attempt in this round through the hosts
        self._requests_wait = requests_wait
        self._pinged = pinged
        self._attend = attend
        self._on_end = on_end
        self._context: ssl.SSLContext | None = None
        self._wakeup_reader: socket.socket | None = None
        self._wakeup_writer: socket.socket | None = None

    # -- the thread ------------------------------------------------------------------------------------------------

    def start(self) -> None:
        self._running = True  # kazoo would start worker threads here

    def stop(self) -> None:
        self._running = False

    def spawn(self, main: Callable[[], None], *arguments: Any, **keywords: Any) -> threading.Thread:
        def run() -> None:
            try:
                main(*arguments, **keywords)
            except Exception as error:
                self.last_error = error
                _log.debug("a session's thread has ended", exc_info=True)
            finally:
                self._on_end()

        return start_daemon(run, "holdfast-zookeeper")

    def event_object(self) -> _Flag:
        return _Flag()

    def dispatch_callback(self, callback: Any) -> None:
        callback.func(*callback.args)

    # -- waking the thread -----------------------------------------------------------------------------------------

    def create_socket_pair(self) -> tuple[socket.socket, socket.socket]:
        self._wakeup_reader, self._wakeup_writer = socket.socketpair()
        self._wakeup_writer.setblocking(False)
        return self._wakeup_reader, self._wakeup_writer

    def wake(self) -> None:
        """Make the thread send queued requests. Never blocks: safe on an event loop and in ``__del__``."""
        writer = self._wakeup_writer
        if writer is not None:
            try:
                writer.send(b"\0")
            except OSError:
                pass  # full, so the thread is already being woken; or it has ended

    # -- waiting ---------------------------------------------------------------------------------------------------

    def select(
        self, readers: Sequence[Any], writers: Sequence[Any], _: object, timeout: float | None = None
    ) -> tuple[list[Any], list[Any], list[Any]]:
        """Which sockets are ready. kazoo's main loop includes the wake-up socket; other calls do not."""
        if self._wakeup_reader in readers:
            self._attend()
            # kazoo waits up to 0.4 s longer than intended, which may exceed a short session's timeout. After a ping, it
            # treats the end of this wait as the end of the connection: so wait longer then.
            pause = self.longest_pause
            timeout = 2 * pause if self._pinged() else min(pause, pause if timeout is None else timeout)
            # Data that TLS has already decrypted does not make a socket readable.
            if ahead := [each for each in readers if isinstance(each, ssl.SSLSocket) and each.pending()]:
                return ahead + _ready([self._wakeup_reader], (), 0.0)[0], [], []
            if self._requests_wait() and self._wakeup_reader not in (found := _ready(readers, (), 0.0))[0]:
                if found[0]:
                    return *found, []
                # kazoo sends one request per wake-up. A caller was interrupted between queueing and waking, or the
                # socket buffer was full: without this, each request would wait for the next one.
                self.wake()
            # A caller registers its grant after this thread has delivered the answer: at the first call of ``attend``
            # it may not be due.
            looks, pause = _LOOKS, MOMENT
            while pause < timeout:
                if (found := _ready(readers, writers, pause)) != ([], []):
                    return *found, []
                timeout, looks = timeout - pause, looks - 1
                wanted = self._attend()
                pause = MOMENT if looks > 0 else max(MOMENT, wanted)
        return *_ready(readers, writers, timeout), []

    # -- connecting ------------------------------------------------------------------------------------------------

    def create_connection(
        self, address: tuple[str, int], hostname: str, timeout: float, use_ssl: bool, **tls: Any
    ) -> socket.socket:
        """A connected socket, with TLS if requested. Unlike kazoo's, an unreachable host does not use up the session's
        timeout."""
        if use_ssl and self._context is None:
            self._context = tls_context(**tls)
        try:
            connected = socket.create_connection(address, min(timeout, CONNECT_WITHIN))
            connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self._context is not None:
                connected = self._context.wrap_socket(connected, server_hostname=hostname)
        except OSError as error:
            self.last_error = error
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
    """The TLS context for kazoo's settings. Raises TlsSetupFailed if their files cannot be used."""
    try:
        context = ssl.create_default_context(cafile=ca)
        if certfile and keyfile:
            context.load_cert_chain(certfile, keyfile, keyfile_password)
    except OSError as error:
        raise TlsSetupFailed(
            f"{error.strerror or type(error).__name__} (ca, certfile, keyfile, keyfile_password)"
        ) from error
    context.check_hostname = check_hostname
    if not verify_certs:
        context.verify_mode = ssl.CERT_NONE
    return context
