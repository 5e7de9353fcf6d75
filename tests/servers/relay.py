"""A TCP relay that can become a black hole: between a client and its server, or between members of an ensemble."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Callable, Coroutine
from contextlib import suppress
from types import TracebackType
from typing import Any, Final, Self, TypeAlias

from holdfast.testing.connections import end_connections, stop_listening
from tests.servers.loop_thread import LoopThread
from tests.servers.process import Closing

Address: TypeAlias = tuple[str, int]

_CHUNK: Final = 1 << 16
_RETRY: Final = 0.01
# The kernel's state of a connection that the peer has not closed.
_ESTABLISHED: Final = 1


class Relay(Closing):
    """Listens on a port of 127.0.0.1 and passes all data on to ``target()``, which is called for each connection.

    For ``retry_for`` seconds it retries to connect to a target that refuses, before it disconnects the client.
    """

    def __init__(self, loop: LoopThread, target: Callable[[], Address], *, retry_for: float = 0.0) -> None:
        self.host = "127.0.0.1"
        # Never listens: reserves the port while new connections are refused.
        self._placeholder = _bind(0)
        self.port: int = self._placeholder.getsockname()[1]
        self.target = target
        self.retry_for = retry_for
        #: Cleared while the relay is a black hole.
        self.passing = asyncio.Event()
        self.passing.set()
        self._loop = loop
        self._passages: dict[Passage, asyncio.Task[None]] = {}
        self._faults: list[BaseException] = []
        self._listener: asyncio.Server | None = None

    # ---- life cycle

    def start(self) -> Self:
        self.accept()
        return self

    def close(self) -> None:
        """Cut all connections. Raises an error that occurred inside the relay. Idempotent."""
        if self._placeholder.fileno() < 0:
            return
        self._loop.do(self._shut_down)
        self._placeholder.close()
        if self._faults:
            raise self._faults.pop()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            self.close()
        except BaseException:
            if error is None:  # otherwise report the test's own failure
                raise

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"

    @property
    def connections(self) -> int:
        """Clients connected at present."""
        return len(self._passages)

    # ---- faults

    def refuse(self) -> None:
        """Refuse new connections, as if no server listened. Existing connections continue."""

        async def refuse() -> None:
            if self._listener is not None:
                listener, self._listener = self._listener, None
                await stop_listening(listener)

        self._loop.do(refuse)

    def accept(self) -> None:
        """Accept new connections again."""

        async def accept() -> None:
            if self._listener is None:
                self._listener = await asyncio.start_server(self._serve, sock=_bind(self.port))

        self._loop.do(accept)

    def cut_all(self) -> int:
        """Reset every connection; returns how many there were."""

        async def cut() -> int:
            passages = list(self._passages)
            for passage in passages:
                passage.reset()
            return len(passages)

        return self._loop.do(cut)

    def black_hole_all(self) -> None:
        """From now on nothing passes, in either direction: no byte, no FIN, no new connection. All stay open."""

        async def stop() -> None:
            self.passing.clear()

        self._loop.do(stop)

    def heal(self) -> None:
        """Data held back arrives in order, as TCP would have retransmitted it, even from a side that has disconnected
        meanwhile: requests may arrive late, from a client that no longer waits for them."""

        async def resume() -> None:
            self.passing.set()

        self._loop.do(resume)

    # ---- internals

    def _passage(self, client_in: asyncio.StreamReader, client_out: asyncio.StreamWriter) -> Passage:
        return Passage(self, client_in, client_out)

    async def _serve(self, client_in: asyncio.StreamReader, client_out: asyncio.StreamWriter) -> None:
        passage = self._passage(client_in, client_out)
        task = asyncio.current_task()
        assert task is not None
        self._passages[passage] = task
        try:
            await passage.run()
        except asyncio.CancelledError:
            pass  # shutting down
        except BaseException as error:
            self._faults.append(error)
        finally:
            del self._passages[passage]

    async def _shut_down(self) -> None:
        if self._listener is not None:
            await stop_listening(self._listener)
            self._listener = None
        await end_connections(self._passages.values)


class Passage:
    """One connection through a relay. A subclass may inspect or change the data.

    ``silent``: no data passes, but the connections stay open, as after a lost NAT entry.
    """

    def __init__(self, relay: Relay, client_in: asyncio.StreamReader, client_out: asyncio.StreamWriter) -> None:
        self.silent = False
        self._relay = relay
        self._client_in, self._client_out = client_in, client_out
        self._server_out: asyncio.StreamWriter | None = None

    async def run(self) -> None:
        """Pass data until both sides are closed."""
        try:
            if not self._relay.passing.is_set():
                await self._relay.passing.wait()
                if not self._client_is_connected():
                    return  # it disconnected during the black hole: as if its SYN had never arrived
            server_in = await self._reach_server()
            if server_in is None or self._server_out is None:
                self.reset()  # the server is down, which must not look like a black hole
                return
            await self._both_ways(server_in, self._server_out)
        except Exception:
            self.reset()
            raise
        finally:
            for writer in (self._client_out, self._server_out):
                if writer is not None:
                    await _closed(writer)

    async def upstream(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        """From the client to the server, until the client's end."""
        while data := await source.read(_CHUNK):
            await self.pass_on(data, sink)

    async def downstream(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        """From the server to the client, until the server's end."""
        while data := await source.read(_CHUNK):
            await self.pass_on(data, sink)

    async def pass_on(self, data: bytes, sink: asyncio.StreamWriter) -> None:
        """Write ``data`` to ``sink``; during a black hole, wait for its end first."""
        await self._relay.passing.wait()
        if not self.silent:
            sink.write(data)
            await sink.drain()

    def reset(self) -> None:
        """RST to the client, discarding pending data; the server sees an ordinary close."""
        if not self._client_out.is_closing():
            sock = self._client_out.get_extra_info("socket")
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._client_out.transport.abort()
        if self._server_out is not None:
            self._server_out.close()

    # ---- internals

    def _client_is_connected(self) -> bool:
        sock = self._client_out.get_extra_info("socket")
        state: bytes = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)
        return state[0] == _ESTABLISHED

    async def _reach_server(self) -> asyncio.StreamReader | None:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._relay.retry_for
        while True:
            try:
                server_in, self._server_out = await asyncio.open_connection(*self._relay.target())
            except OSError:
                if loop.time() >= deadline:
                    return None
                await asyncio.sleep(_RETRY)
            else:
                return server_in

    async def _both_ways(self, server_in: asyncio.StreamReader, server_out: asyncio.StreamWriter) -> None:
        up, down = self.upstream(self._client_in, server_out), self.downstream(server_in, self._client_out)
        pumps = [asyncio.ensure_future(self._to_the_end(up, server_out))]
        pumps.append(asyncio.ensure_future(self._to_the_end(down, self._client_out)))
        try:
            await asyncio.gather(*pumps)
        finally:
            for pump in pumps:
                pump.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)

    async def _to_the_end(self, passing: Coroutine[Any, Any, None], sink: asyncio.StreamWriter) -> None:
        """Pass on the data of one side until it closes, and then the close."""
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            await passing
        await self._relay.passing.wait()
        if not self.silent:
            sink.close()  # after the written data; ends the reader of that side, too


async def _closed(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with suppress(OSError):  # reset by either side: it is closed
        await writer.wait_closed()


def _bind(port: int) -> socket.socket:
    # With an explicit protocol, which accepted sockets inherit: asyncio sets TCP_NODELAY only if it is IPPROTO_TCP.
    bound = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    bound.bind(("127.0.0.1", port))
    return bound
