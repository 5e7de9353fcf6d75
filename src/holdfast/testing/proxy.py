"""A TCP proxy in front of a real Redis that understands RESP: faults apply to single requests or their replies.

::

    with FaultProxy("127.0.0.1", 6379) as proxy:
        lost = proxy.on("EVALSHA").drop_reply_and_reset()
        ...  # connect to proxy.url and acquire
        assert lost.wait(5)  # the script ran, and its reply was lost

It runs in the process of the test, on one daemon thread. It counts replies to know which request each one answers;
RESP3 pushes and pub/sub messages are not counted. Not supported: TLS, MONITOR, CLIENT REPLY OFF or SKIP. If it cannot
parse something, the connection is reset, and leaving the ``with`` block raises.
"""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Any, Final, Self, TypeVar

from holdfast.testing import resp
from holdfast.testing.connections import end_connections, stop_listening
from holdfast.testing.faults import HasDigest, Occasion, Rule, Words, matcher
from holdfast.testing.link import Link

T = TypeVar("T")

#: The longest time for any call on the proxy's own thread. Reaching it is a bug here.
_CALL_TIMEOUT: Final = 10.0


class FaultProxy:
    """Listens on a free port of 127.0.0.1; ``host`` and ``port`` of the constructor are the server's."""

    def __init__(self, host: str, port: int) -> None:
        self.host = "127.0.0.1"
        self.port = 0
        self.seen: list[Words] = []  #: every request that arrived, in order
        self._server = (host, port)
        self._rules: list[Rule] = []
        self._links: dict[Link, asyncio.Task[None]] = {}
        self._duplicates: list[tuple[list[bytes], bytes]] = []
        self._partitioned = False
        self._faults: list[BaseException] = []
        self._listener: asyncio.Server | None = None
        # Never listens: reserves the port while new connections are refused.
        self._placeholder: socket.socket | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    # ---- life cycle

    def start(self) -> Self:
        self._placeholder = _bind(0)
        self.port = self._placeholder.getsockname()[1]
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="holdfast-fault-proxy", daemon=True)
        self._thread.start()
        self._do(self._listen)
        return self

    def close(self) -> None:
        """Cut all connections and stop. Raises an error that occurred inside the proxy."""
        loop, thread, placeholder = self._loop, self._thread, self._placeholder
        if loop is None or thread is None or placeholder is None:
            return
        self._do(self._shut_down)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(_CALL_TIMEOUT)
        loop.close()
        placeholder.close()
        self._loop = self._thread = self._placeholder = None
        if self._faults:
            raise self._faults[0]

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            self.close()
        except BaseException:
            if error is None:  # otherwise report the test's own failure
                raise

    @property
    def url(self) -> str:
        return f"redis://{self.host}:{self.port}/0"

    @property
    def connections(self) -> int:
        """Clients connected at present."""
        return len(self._links)

    # ---- faults

    def on(
        self,
        command: str | None = None,
        *,
        script: str | HasDigest | None = None,
        containing: bytes | str | None = None,
        nth: int = 1,
        times: int | None = 1,
    ) -> Occasion:
        """The ``nth`` request from now that matches, and the ``times - 1`` after it (None: all).

        ``command``: its name. ``script``: the name of one of holdfast's scripts, a SHA1, or an object with ``sha``;
        matches EVALSHA and EVAL. That of an acquire stands for both scripts that acquire a lock.
        ``containing``: part of one of the arguments. Without ``command``, the handshake (HELLO, AUTH, CLIENT, SELECT,
        READONLY) never matches. A script that the server did not know (NOSCRIPT) has not run and does not count for
        faults of the reply. If several rules match a request, the one that was armed first applies.
        """
        if nth < 1 or (times is not None and times < 1):
            raise ValueError("nth and times count from 1")
        return Occasion(self._arm, matcher(command, script, containing), nth, times)

    def refuse(self) -> None:
        """Refuse new connections, as if the port was closed. Existing ones stay open."""

        async def refuse() -> None:
            if self._listener is not None:
                listener, self._listener = self._listener, None
                await stop_listening(listener)

        self._do(refuse)

    def accept(self) -> None:
        """Accept new connections again."""
        self._do(self._listen)

    def cut_all(self) -> int:
        """Reset every connection now. Returns how many there were."""

        async def cut() -> int:
            links = list(self._links)
            for link in links:
                link.reset()
            return len(links)

        return self._do(cut)

    def black_hole_all(self) -> None:
        """A partition: nothing passes in either direction, on old or new connections; none is closed."""
        self._set_partitioned(True)

    def heal(self) -> None:
        """End the partition for new connections. Old ones stay silent, as after a lost NAT entry."""
        self._set_partitioned(False)

    def release_duplicates(self) -> list[bytes]:
        """Send the copies that ``duplicate`` rules kept, each on a new connection; the server's raw replies."""

        async def release() -> list[bytes]:
            copies, self._duplicates = self._duplicates, []
            return [await self._send_apart(handshake, frame) for handshake, frame in copies]

        return self._do(release)

    # ---- for the links, on the loop

    def match(self, request: Words) -> Rule | None:
        self.seen.append(request)
        # All rules count the request, even those that do not apply because another rule was first.
        claimed = [rule for rule in self._rules if rule.claims(request)]
        return claimed[0] if claimed else None

    def keep_duplicate(self, handshake: list[bytes], frame: bytes) -> None:
        self._duplicates.append((list(handshake), frame))

    # ---- internals

    def _arm(self, rule: Rule) -> None:
        async def arm() -> None:
            self._rules.append(rule)

        self._do(arm)

    def _set_partitioned(self, partitioned: bool) -> None:
        async def set_partitioned() -> None:
            self._partitioned = partitioned
            if partitioned:
                for link in self._links:
                    link.silent = True

        self._do(set_partitioned)

    def _do(self, main: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Run ``main()`` on the proxy's thread and wait for it."""
        if self._loop is None:
            raise RuntimeError("the proxy is not running; use it in a with block")
        return asyncio.run_coroutine_threadsafe(main(), self._loop).result(_CALL_TIMEOUT)

    async def _listen(self) -> None:
        if self._listener is None:
            self._listener = await asyncio.start_server(self._serve, sock=_bind(self.port))

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        link = Link(self, reader, writer, silent=self._partitioned)
        task = asyncio.current_task()
        assert task is not None
        self._links[link] = task
        try:
            await link.run(*self._server)
        except asyncio.CancelledError:
            pass  # the proxy is shutting down
        except BaseException as error:
            self._faults.append(error)
        finally:
            del self._links[link]

    async def _shut_down(self) -> None:
        if self._listener is not None:
            await stop_listening(self._listener)
        await end_connections(self._links.values)

    async def _send_apart(self, handshake: list[bytes], frame: bytes) -> bytes:
        reader, writer = await asyncio.open_connection(*self._server)
        frames = resp.Frames()
        reply = b""
        try:
            for request in (*handshake, frame):
                writer.write(request)
                reply = b""
                while not reply:
                    data = await reader.read(65536)
                    if not data:
                        raise ConnectionResetError("the server closed the connection of a duplicate")
                    reply = next((answer for answer in frames.feed(data) if not resp.is_push(answer)), b"")
        finally:
            writer.close()
            await writer.wait_closed()
        return reply


def _bind(port: int) -> socket.socket:
    # With an explicit protocol, which accepted sockets inherit: asyncio sets TCP_NODELAY only if it is IPPROTO_TCP.
    # Without TCP_NODELAY slices would be sent together, and small replies would wait for a delayed ACK.
    bound = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    bound.bind(("127.0.0.1", port))
    return bound
