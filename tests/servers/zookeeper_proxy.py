"""A proxy in front of a real ZooKeeper that understands its protocol: faults affect one request or its reply.

::

    with ZooKeeperProxy(server.host, server.port) as proxy:
        lost = proxy.on(Op.CREATE2).drop_reply_and_reset()
        ...  # connect to proxy.url and acquire
        assert lost.wait(5)  # the node exists, but the client does not know

It matches a reply to its request by the number (xid). Not understood: TLS, four-letter commands. If it cannot parse a
message, it resets the connection, and leaving the ``with`` block raises.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict, deque
from typing import Final

from holdfast.testing.faults import Occasion, Rule, Words
from tests.servers.loop_thread import LoopThread
from tests.servers.relay import Passage, Relay
from tests.servers.zookeeper import BASE
from tests.servers.zookeeper_wire import EVENT_XID, Frames, Op, ProtocolError, framed, read_reply, read_request

#: Messages that set up, keep and end a session. A rule matches them only if it names them.
UPKEEP: Final = frozenset({Op.CONNECT, Op.PING, Op.AUTH, Op.SASL, Op.SET_WATCHES, Op.SET_WATCHES2, Op.EVENT, Op.CLOSE})

_CHUNK: Final = 1 << 16
# The first message each way has no header. Clients number their requests from 1.
_CONNECT_XID: Final = 0


class ZooKeeperProxy(Relay):
    """Listens on a free port of 127.0.0.1; ``host`` and ``port`` of the constructor are the server's."""

    def __init__(self, host: str, port: int) -> None:
        super().__init__(LoopThread("zookeeper-proxy"), lambda: (host, port))
        self.seen: list[Words] = []  #: name and body of every request that arrived, and every event, in order
        self._rules: list[Rule] = []

    def close(self) -> None:
        """Cut all connections and stop. Raises an error that occurred inside the proxy."""
        try:
            super().close()
        finally:
            self._loop.close()

    @property
    def url(self) -> str:
        return f"zookeeper://{self.address}{BASE}"

    def operations(self) -> list[Op]:
        """The operations that clients have requested so far, in order, without the upkeep of their sessions."""
        return [op for name, _ in self.seen if (op := Op[name.decode()]) not in UPKEEP]

    def on(self, *ops: Op, containing: bytes | str | None = None, nth: int = 1, times: int | None = 1) -> Occasion:
        """The ``nth`` request from now that matches, and the ``times - 1`` after it (None: all).

        ``ops``: any of these; without, any operation except upkeep. ``containing``: part of the body, such as a path.
        An event of the server (``Op.EVENT``) counts as a reply: ``drop_reply_and_reset`` and ``delay`` apply to it.
        Several rules may match a request; the one armed first acts.
        """
        if nth < 1 or (times is not None and times < 1):
            raise ValueError("nth and times count from 1")
        part = containing.encode() if isinstance(containing, str) else containing or b""

        def matches(request: Words) -> bool:
            op = Op[request[0].decode()]
            return (op in ops if ops else op not in UPKEEP) and part in request[1]

        return Occasion(self._arm, matches, nth, times)

    def match(self, op: Op, body: bytes) -> tuple[Words, Rule | None]:
        """Called by the sessions, on the loop."""
        request = (op.name.encode(), body)
        self.seen.append(request)
        # All rules count the request, even those that do not act because an earlier one does.
        claimed = [rule for rule in self._rules if rule.claims(request)]
        return request, claimed[0] if claimed else None

    def _arm(self, rule: Rule) -> None:
        if rule.fault.kind == "duplicate":
            raise ValueError("a request belongs to its session and means nothing on another connection")

        async def arm() -> None:
            self._rules.append(rule)

        self._loop.do(arm)

    def _passage(self, client_in: asyncio.StreamReader, client_out: asyncio.StreamWriter) -> Passage:
        return _Session(self, client_in, client_out)


class _Session(Passage):
    """One client's connection; matches replies to requests."""

    def __init__(
        self, proxy: ZooKeeperProxy, client_in: asyncio.StreamReader, client_out: asyncio.StreamWriter
    ) -> None:
        super().__init__(proxy, client_in, client_out)
        self._proxy = proxy
        self._was_reset = False
        # By xid: pings and other upkeep share one each, and are answered in order.
        self._due: defaultdict[int, deque[tuple[Words, Rule | None]]] = defaultdict(deque)

    def reset(self) -> None:
        self._was_reset = True
        super().reset()

    # ---- client to server

    async def upstream(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        frames, connected = Frames(), False
        while data := await source.read(_CHUNK):
            for payload in frames.feed(data):
                await self._proxy.passing.wait()
                if not (self.silent or self._was_reset):
                    await self._request(payload, sink, *(read_request(payload) if connected else _connect(payload)))
                    connected = True

    async def _request(self, payload: bytes, sink: asyncio.StreamWriter, xid: int, op: Op, body: bytes) -> None:
        request, rule = self._proxy.match(op, body)
        sliced = rule is not None and rule.fault.kind == "slice"
        if rule is not None and rule.fault.side == "request":
            rule.fire(request)
            match rule.fault.kind:
                case "drop_request_and_reset":
                    return self.reset()
                case "drop_request_black_hole":
                    self.silent = True
                case "delay":
                    await rule.held()
            rule = None
        self._due[xid].append((request, rule))
        return await self._send(payload, sink, sliced=sliced)

    # ---- server to client

    async def downstream(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        frames, connected = Frames(), False
        while data := await source.read(_CHUNK):
            for payload in frames.feed(data):
                await self._proxy.passing.wait()
                if not (self.silent or self._was_reset):
                    xid = read_reply(payload)[0].xid if connected else _CONNECT_XID
                    await self._reply(payload, sink, xid)
                    connected = True

    async def _reply(self, payload: bytes, sink: asyncio.StreamWriter, xid: int) -> None:
        if xid == EVENT_XID:
            request, rule = self._proxy.match(Op.EVENT, read_reply(payload)[1])
        elif self._due[xid]:
            request, rule = self._due[xid].popleft()
        else:
            raise ProtocolError(f"a reply to request {xid}, which was never sent")
        if rule is not None:
            match rule.fault.kind:
                case "drop_reply_and_reset":
                    self.reset()
                case "black_hole":
                    self.silent = True
            rule.fire(request)
            if rule.fault.kind == "delay":
                await rule.held()
        await self._send(payload, sink, sliced=rule is not None and rule.fault.kind == "slice")

    async def _send(self, payload: bytes, sink: asyncio.StreamWriter, *, sliced: bool) -> None:
        frame = framed(payload)
        for piece in [frame[at : at + 1] for at in range(len(frame))] if sliced else [frame]:
            if not self._was_reset:
                await self.pass_on(piece, sink)
            if sliced:
                await asyncio.sleep(0)  # otherwise they are sent together


def _connect(payload: bytes) -> tuple[int, Op, bytes]:
    return _CONNECT_XID, Op.CONNECT, payload
