"""One ZooKeeper session over kazoo: requests, and what becomes of it. With ``handler``, all that knows kazoo's insides.

A session lives on the servers. Its connection may break and be made anew, also to another server: the same session,
and its nodes are there. Or the servers end it, because they heard nothing for too long: its nodes are gone, and kazoo
begins another one. Requests are answered in the order in which they were sent.
"""

from __future__ import annotations

import logging
import socket
import threading
from collections.abc import Callable, MutableMapping
from ssl import SSLCertVerificationError
from typing import Any, Final, Protocol

from kazoo.client import CLOSED_STATES, KazooClient
from kazoo.exceptions import EXCEPTIONS, ConnectionClosedError, SystemZookeeperError
from kazoo.protocol.serialization import CloseInstance, Create2, Delete, GetChildren, GetData, Sync
from kazoo.protocol.states import KazooState, KeeperState
from kazoo.retry import ForceRetryError, KazooRetry
from kazoo.security import ACL, OPEN_ACL_UNSAFE

from holdfast._runtime.clock import now
from holdfast.engines.zookeeper.handler import CONNECT_WITHIN, Handler
from holdfast.engines.zookeeper.pulse import Pulse
from holdfast.engines.zookeeper.watches import Watches

_log: Final = logging.getLogger("holdfast.zookeeper")

_ANY_VERSION: Final = -1
_EPHEMERAL_SEQUENTIAL: Final = 3
_CONTAINER: Final = 4
#: A session that is idle says so at least this often in its time-out.
PINGS_PER_SESSION: Final = 6
#: A part of the session's time-out: who picks up and then says nothing must leave time for the others.
_HANDSHAKES_PER_SESSION: Final = 6


class Receiver(Protocol):
    """Where the answer to a request goes; called on kazoo's thread, so it must not block."""

    def set(self, value: Any = None) -> None: ...

    def set_exception(self, exception: BaseException) -> None: ...


class _CreateContainer(Create2):  # type: ignore[misc]
    """A node that the servers remove some time after its last child has gone. kazoo has no name for it."""

    type = 19


class _Quiet(logging.LoggerAdapter[logging.Logger]):
    """kazoo warns at each attempt to connect: only those who look for details see it. What it says in even more detail,
    it says with the password of the session."""

    def log(self, level: int, msg: object, *args: object, **kwargs: Any) -> None:
        if level >= logging.DEBUG:
            super().log(logging.DEBUG, msg, *args, **kwargs)

    def process(self, msg: Any, kwargs: MutableMapping[str, Any]) -> tuple[Any, MutableMapping[str, Any]]:
        return msg, kwargs


class Connection:
    """Opens with ``start``. ``on_change`` is called with it, on kazoo's thread, whenever its state changes; ``attend``,
    when that thread is about to wait, and a moment later if it still does.

    Requests are sent in the order of the calls. They need ``connected``, or else wait until it is; by then it may be
    another session.
    """

    def __init__(
        self,
        hosts: str,
        timeout: float,
        tick: float,
        keywords: dict[str, Any],
        on_change: Callable[[Connection], None],
        attend: Callable[[Connection], None],
    ) -> None:
        self.timeout = timeout  #: asked for
        self.negotiated = 0.0  #: granted by the servers; 0.0 before the first connection
        self.session: int | None = None  #: on the servers, as far as we know; None before the first and after its end
        self.connected = False  #: and authenticated
        self.used = now()  #: when it was last given to a caller
        self.over = False  #: it will not connect any more: closed, or its credentials were refused
        self.refused = False  #: the servers did not accept our credentials
        self.rejected = False  #: we did not accept the certificate of any server
        self.watches = Watches()
        self.pulse = Pulse(tick)
        self._on_change = on_change
        self._starting = threading.RLock()  # re-entrant: ``end`` may be called by ``__del__``, anywhere
        self._started = False
        self._handler = Handler(
            requests_wait=lambda: bool(self._client._queue),
            pinged=lambda: bool(self._client._connection.ping_outstanding.is_set()),
            attend=lambda: attend(self),
            on_end=self._ended,
        )
        self._client = KazooClient(
            hosts=hosts,
            timeout=timeout,
            handler=self._handler,
            connection_retry=KazooRetry(max_tries=-1, delay=0.05, max_delay=0.4),
            logger=_Quiet(_log),
            **keywords,
        )
        self._acl: list[ACL] = list(self._client.default_acl or OPEN_ACL_UNSAFE)
        self._client.add_listener(self._changed)
        self._listen_in()

    def _listen_in(self) -> None:
        """Learn of the handshake what kazoo keeps to itself, and bound it."""
        inner = self._client._connection
        connect, invoke, submit, read = inner._connect, inner._invoke, inner._submit, inner._read_header
        go_round = inner._connect_loop
        longest = max(CONNECT_WITHIN, self.timeout / _HANDSHAKES_PER_SESSION)

        def _connect(*place: Any) -> tuple[float, float]:
            began = now()
            read_timeout, connect_timeout = connect(*place)
            self.pulse.begin(began)
            self._connected(round(read_timeout * 1.5) / 1000.0)  # kazoo reads for two thirds of what was granted
            _log.info("connected to ZooKeeper at %s:%s", place[0], place[2])
            return read_timeout / 2, connect_timeout  # it pings after half of that: twice as often as it would

        def _submit(request: Any, timeout: float, xid: int | None = None) -> None:
            self.pulse.sent(xid, now())
            submit(request, timeout, xid)

        def _read_header(timeout: float) -> Any:
            header, *body = read(timeout)
            self.pulse.answered(header.xid, now())
            if header.err and header.err not in EXCEPTIONS:
                # kazoo's thread would end here, and the session with all its locks.
                _log.warning("ZooKeeper has answered with error %d, which kazoo does not know", header.err)
                header = header._replace(err=SystemZookeeperError.code)
            return header, *body

        inner._connect, inner._submit, inner._read_header = _connect, _submit, _read_header
        inner._connect_loop = lambda retry: self._go_round(go_round, retry)
        inner._invoke = lambda timeout, *request, **xid: invoke(min(timeout, longest), *request, **xid)

    def _go_round(self, go_round: Callable[[Any], Any], retry: Any) -> Any:
        """Try one host after the other, and see what became of all of them."""
        attempts = self._handler.attempts = []
        try:
            return go_round(retry)
        except ForceRetryError:
            if not attempts:
                self._handler.trouble = socket.gaierror("the name of no host could be resolved")
            raise
        finally:
            # By all of them: where one has a certificate that has expired, another one may serve.
            self.rejected = bool(attempts) and all(isinstance(each, SSLCertVerificationError) for each in attempts)
            if self.rejected:
                self._on_change(self)

    def _connected(self, negotiated: float) -> None:
        self.negotiated = negotiated
        self._handler.longest_pause = negotiated / PINGS_PER_SESSION
        self._handler.trouble, self.rejected = None, False
        self.session, self.connected = self._client._session_id, True
        self._on_change(self)

    # -- life ------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin to connect, if nobody has yet. Does not wait."""
        if not self._started:
            with self._starting:
                if not self._started:
                    try:
                        self._started = True
                        self._client.start_async()
                    except BaseException:
                        # Ctrl-C, perhaps when the thread was running already; or no more threads are to be had. Started
                        # once more, kazoo would wait for the end of that thread, for ever: others begin anew.
                        self.over = True
                        self._say_goodbye()
                        raise

    @property
    def trouble(self) -> Exception | None:
        """Why the last attempt to connect has failed."""
        return self._handler.trouble

    def end(self) -> None:
        """Have the session ended, and its nodes with it, as far as the servers can be told. Does not wait."""
        with self._starting:
            started, self._started = self._started, True
        if started:
            self._say_goodbye()
        else:
            self.over = True

    def _say_goodbye(self) -> None:
        self._client._stopped.set()
        self._client._queue.append((CloseInstance, None))
        self._handler.ring()

    def hang_up(self) -> None:
        """Break the connection, to have another one made: the session lives on."""
        connected = self._client._connection._socket
        if connected is not None:
            try:
                # Not that of an SSLSocket, which would first take TLS away under kazoo's reads.
                socket.socket.shutdown(connected, socket.SHUT_RDWR)
            except OSError:
                pass  # it is broken

    def after_fork_in_child(self) -> None:
        """Close what was inherited, without a word on it: the parent goes on using the same connection."""
        inner = self._client._connection
        for each in (inner._socket, inner._read_sock, inner._write_sock):
            if each is not None:
                each.close()

    def _changed(self, state: str) -> None:
        if state == KazooState.CONNECTED:
            return  # not yet authenticated: that is told once it is
        self.connected = False
        if state == KazooState.LOST:
            if self._client._state == KeeperState.EXPIRED_SESSION:
                _log.warning("the ZooKeeper session has ended, and its locks with it")
            self.session = None
            self.refused = self._client._state == KeeperState.AUTH_FAILED
        else:
            _log.info("the connection to ZooKeeper is lost; trying again")
        self._on_change(self)

    def _ended(self) -> None:
        self._client.close()
        self.connected, self.session, self.over = False, None, True
        self._on_change(self)

    # -- requests --------------------------------------------------------------------------------------------------

    def create(self, path: str, data: bytes, receiver: Receiver) -> None:
        """An ephemeral, sequential node of this session: its path and stat."""
        self._send(Create2(path, data, self._acl, _EPHEMERAL_SEQUENTIAL), receiver)

    def create_container(self, path: str, receiver: Receiver) -> None:
        self._send(_CreateContainer(path, b"", self._acl, _CONTAINER), receiver)

    def children(self, path: str, receiver: Receiver) -> None:
        self._send(GetChildren(path, None), receiver)

    def get(self, path: str, receiver: Receiver) -> None:
        """Data and stat."""
        self._send(GetData(path, None), receiver)

    def watch(self, path: str, receiver: Receiver) -> None:
        """As ``get``, and sets a watch for ``watches``. (``exists`` would set one on a node that is gone already.)"""
        self._send(GetData(path, self.watches.on_event), receiver)

    def delete(self, path: str, receiver: Receiver) -> None:
        self._send(Delete(path, _ANY_VERSION), receiver)

    def sync(self, path: str, receiver: Receiver) -> None:
        """Answered by the leader, when this server has caught up with it."""
        self._send(Sync(path), receiver)

    def _send(self, request: Any, receiver: Receiver) -> None:
        # kazoo's own way to send would swallow a Ctrl-C, and block when its thread cannot keep up.
        if self._client._state in CLOSED_STATES:
            receiver.set_exception(ConnectionClosedError("the session is over"))
            return
        self._client._queue.append((request, receiver))
        self._handler.ring()
