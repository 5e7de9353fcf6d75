"""One ZooKeeper session over kazoo: its requests and its state. Only this file and ``handler`` use kazoo's internals.

A session lives on the servers. Its connection may break and be re-established, also to another server: the session and
its nodes are still there. Or the servers expire it after too long a silence: its nodes are gone, and kazoo starts a new
one. Requests are answered in the order in which they were sent.
"""

from __future__ import annotations

import logging
import socket
import threading
from collections.abc import Callable, MutableMapping, Sequence
from ssl import SSLCertVerificationError
from typing import Any, Final, Protocol

from kazoo.client import CLOSED_STATES, KazooClient
from kazoo.exceptions import EXCEPTIONS, ConnectionClosedError, SystemZookeeperError
from kazoo.protocol.serialization import (
    CheckVersion,
    CloseInstance,
    Create,
    Create2,
    Delete,
    Exists,
    GetChildren,
    GetChildren2,
    GetData,
    SetData,
    Sync,
    Transaction,
)
from kazoo.protocol.states import KazooState, KeeperState
from kazoo.retry import ForceRetryError, KazooRetry
from kazoo.security import ACL, OPEN_ACL_UNSAFE

from holdfast._runtime.clock import now
from holdfast.engines.zookeeper.handler import CONNECT_WITHIN, Handler
from holdfast.engines.zookeeper.heartbeat import Heartbeat
from holdfast.engines.zookeeper.watches import Watches

_log: Final = logging.getLogger("holdfast.zookeeper")

_ANY_VERSION: Final = -1
_PERSISTENT: Final = 0
_EPHEMERAL: Final = 1
_EPHEMERAL_SEQUENTIAL: Final = 3
_CONTAINER: Final = 4
#: An idle session sends at least this many pings per timeout.
PINGS_PER_SESSION: Final = 6
#: A handshake may take this part of the session's timeout: a server that accepts the connection and then does not
#: answer must leave time for the others.
_HANDSHAKES_PER_SESSION: Final = 6


#: One step of ``Connection.multi``.
Operation = Any


class Receiver(Protocol):
    """Receives the answer to a request; called on kazoo's thread, so it must not block."""

    def set(self, value: Any = None) -> None: ...

    def set_exception(self, exception: BaseException) -> None: ...


class _CreateContainer(Create2):  # type: ignore[misc]
    """A node that the servers remove some time after its last child is gone. kazoo does not provide it."""

    type = 19


class _Quiet(logging.LoggerAdapter[logging.Logger]):
    """kazoo warns at each attempt to connect: logged at DEBUG. Its messages below DEBUG contain the password of the
    session: dropped."""

    def log(self, level: int, msg: object, *args: object, **kwargs: Any) -> None:
        if level >= logging.DEBUG:
            super().log(logging.DEBUG, msg, *args, **kwargs)

    def process(self, msg: Any, kwargs: MutableMapping[str, Any]) -> tuple[Any, MutableMapping[str, Any]]:
        return msg, kwargs


class Connection:
    """``start`` opens it. kazoo's thread calls ``on_change`` when its state changes, and ``attend`` when it is about
    to wait, a moment later if it still waits, and after as many seconds as ``attend`` has answered.

    Requests are sent in the order of the calls. Without a connection they wait for the next one, which may have another
    session.
    """

    def __init__(
        self,
        hosts: str,
        timeout: float,
        tick: float,
        keywords: dict[str, Any],
        on_change: Callable[[Connection], None],
        attend: Callable[[Connection], float],
    ) -> None:
        self.timeout = timeout  #: the requested session timeout
        self.negotiated = 0.0  #: the one that the servers granted; 0.0 before the first connection
        self.session: int | None = None  #: the last known session id; None before the first session and after its end
        self.connected = False  #: connected and authenticated
        self.used = now()  #: when it was last given to a caller
        self.ended = False  #: it will not connect again: closed, or its credentials were refused
        self.refused = False  #: the servers did not accept our credentials
        self.rejected = False  #: we did not accept the certificate of any server
        self.watches = Watches()
        self.heartbeat = Heartbeat(tick)
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
        self._instrument_kazoo()

    def _instrument_kazoo(self) -> None:
        """Wrap kazoo's internal functions, to observe messages and the handshake, and to bound the handshake's time."""
        inner = self._client._connection
        connect, invoke, submit, read = inner._connect, inner._invoke, inner._submit, inner._read_header
        connect_loop = inner._connect_loop
        longest = max(CONNECT_WITHIN, self.timeout / _HANDSHAKES_PER_SESSION)

        def _connect(*place: Any) -> tuple[float, float]:
            began = now()
            read_timeout, connect_timeout = connect(*place)
            self.heartbeat.begin(began)
            self._connected(round(read_timeout * 1.5) / 1000.0)  # kazoo reads for two thirds of what was granted
            _log.info("connected to ZooKeeper at %s:%s", place[0], place[2])
            return read_timeout / 2, connect_timeout  # kazoo pings after half of that: twice as often as by default

        def _submit(request: Any, timeout: float, xid: int | None = None) -> None:
            self.heartbeat.sent(xid, now())
            submit(request, timeout, xid)

        def _read_header(timeout: float) -> Any:
            header, *body = read(timeout)
            self.heartbeat.answered(header.xid, now())
            if header.err and header.err not in EXCEPTIONS:
                # An unknown error code would end kazoo's thread, and with it the session and all its locks.
                _log.warning("ZooKeeper has answered with error %d, which kazoo does not know", header.err)
                header = header._replace(err=SystemZookeeperError.code)
            return header, *body

        inner._connect, inner._submit, inner._read_header = _connect, _submit, _read_header
        inner._connect_loop = lambda retry: self._try_all_hosts(connect_loop, retry)
        inner._invoke = lambda timeout, *request, **xid: invoke(min(timeout, longest), *request, **xid)

    def _try_all_hosts(self, connect_loop: Callable[[Any], Any], retry: Any) -> Any:
        """Try one host after the other, and record the outcome of each."""
        attempts = self._handler.attempts = []
        try:
            return connect_loop(retry)
        except ForceRetryError:
            if not attempts:
                self._handler.last_error = socket.gaierror("the name of no host could be resolved")
            raise
        finally:
            # Rejected only if all are: if one server's certificate has expired, another server may be fine.
            self.rejected = bool(attempts) and all(isinstance(each, SSLCertVerificationError) for each in attempts)
            if self.rejected:
                self._on_change(self)

    def _connected(self, negotiated: float) -> None:
        self.negotiated = negotiated
        self._handler.longest_pause = negotiated / PINGS_PER_SESSION
        self._handler.last_error, self.rejected = None, False
        self.session, self.connected = self._client._session_id, True
        self._on_change(self)

    # -- lifecycle -------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start to connect, if not started yet. Does not wait."""
        if not self._started:
            with self._starting:
                if not self._started:
                    try:
                        self._started = True
                        self._client.start_async()
                    except BaseException:
                        # Ctrl-C, possibly after the thread was started; or no thread could be created. Started again,
                        # kazoo would wait for the end of that thread forever: callers get a new connection instead.
                        self.ended = True
                        self._close_session()
                        raise

    @property
    def last_error(self) -> Exception | None:
        """Why the last attempt to connect failed."""
        return self._handler.last_error

    def end(self) -> None:
        """End the session and its nodes, if the servers can be reached. Does not wait."""
        with self._starting:
            started, self._started = self._started, True
        if started:
            self._close_session()
        else:
            self.ended = True

    def _close_session(self) -> None:
        self._client._stopped.set()
        self._client._queue.append((CloseInstance, None))
        self._handler.wake()

    def break_connection(self) -> None:
        """Break the connection, so that another one is established. The session continues."""
        connected = self._client._connection._socket
        if connected is not None:
            try:
                # Not SSLSocket.shutdown, which would first remove TLS while kazoo reads.
                socket.socket.shutdown(connected, socket.SHUT_RDWR)
            except OSError:
                pass  # already broken

    def after_fork_in_child(self) -> None:
        """Close the inherited sockets without sending anything: the parent continues to use the connection."""
        inner = self._client._connection
        for each in (inner._socket, inner._read_sock, inner._write_sock):
            if each is not None:
                each.close()

    def _changed(self, state: str) -> None:
        if state == KazooState.CONNECTED:
            return  # not authenticated yet: ``_connected`` follows
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
        self.connected, self.session, self.ended = False, None, True
        self._on_change(self)

    # -- requests --------------------------------------------------------------------------------------------------

    def create(self, path: str, data: bytes, receiver: Receiver) -> None:
        """Create an ephemeral, sequential node of this session. The answer is its path and stat."""
        self._send(Create2(path, data, self._acl, _EPHEMERAL_SEQUENTIAL), receiver)

    def create_container(self, path: str, receiver: Receiver) -> None:
        self._send(_CreateContainer(path, b"", self._acl, _CONTAINER), receiver)

    def children(self, path: str, receiver: Receiver) -> None:
        self._send(GetChildren(path, None), receiver)

    def children_and_stat(self, path: str, receiver: Receiver) -> None:
        self._send(GetChildren2(path, None), receiver)

    def stat(self, path: str, receiver: Receiver) -> None:
        """None for a node that does not exist."""
        self._send(Exists(path, None), receiver)

    def get(self, path: str, receiver: Receiver) -> None:
        """Data and stat."""
        self._send(GetData(path, None), receiver)

    def watch(self, path: str, receiver: Receiver) -> None:
        """As ``get``, and sets a watch for ``watches``. (``exists`` would also watch a node that is gone.)"""
        self._send(GetData(path, self.watches.on_event), receiver)

    def delete(self, path: str, receiver: Receiver) -> None:
        self._send(Delete(path, _ANY_VERSION), receiver)

    def sync(self, path: str, receiver: Receiver) -> None:
        """Answered by the leader, once this server has caught up with it."""
        self._send(Sync(path), receiver)

    def watch_children(self, path: str, receiver: Receiver) -> None:
        """As ``children``, and sets a watch for ``watches`` on them."""
        self._send(GetChildren(path, self.watches.on_event), receiver)

    def watch_existence(self, path: str, receiver: Receiver) -> None:
        """The stat, or None; sets a watch for ``watches`` also on a node that does not exist."""
        self._send(Exists(path, self.watches.on_event), receiver)

    def multi(self, operations: Sequence[Operation], receiver: Receiver) -> None:
        """All operations in one step, or none: see ``check``, ``ephemeral``, ``persistent``, ``write`` and ``removal``.
        The answer is one result each; of a failed one, the exceptions (see ``Requester.outcome``)."""
        self._send(Transaction(list(operations)), receiver)

    def check(self, path: str, version: int = _ANY_VERSION) -> Operation:
        """The node exists; in this version."""
        return CheckVersion(path, version)

    def ephemeral(self, path: str, data: bytes) -> Operation:
        return Create(path, data, self._acl, _EPHEMERAL)

    def persistent(self, path: str, data: bytes) -> Operation:
        return Create(path, data, self._acl, _PERSISTENT)

    def write(self, path: str, data: bytes, version: int = _ANY_VERSION) -> Operation:
        return SetData(path, data, version)

    def removal(self, path: str) -> Operation:
        return Delete(path, _ANY_VERSION)

    def _send(self, request: Any, receiver: Receiver) -> None:
        # kazoo's own send would swallow a Ctrl-C, and block if its thread cannot keep up.
        if self._client._state in CLOSED_STATES:
            receiver.set_exception(ConnectionClosedError("the session is over"))
            return
        self._client._queue.append((request, receiver))
        self._handler.wake()
