"""A small ASGI server on a free port of 127.0.0.1: HTTP/1.1, one request per connection, in its own thread.

Like a real server it streams, and it cancels the application when the client disconnects.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any


@contextmanager
def serving_asgi(app: Any) -> Iterator[int]:
    """Yields the port on which ``app`` is served."""
    ready = threading.Event()
    found: list[Any] = []

    async def main() -> None:
        stop = asyncio.Event()
        server = await asyncio.start_server(lambda reader, writer: _connection(app, reader, writer), "127.0.0.1", 0)
        found.extend((asyncio.get_running_loop(), stop, server.sockets[0].getsockname()[1]))
        ready.set()
        async with server:
            await stop.wait()

    thread = threading.Thread(target=lambda: asyncio.run(main()))
    thread.start()
    assert ready.wait(20)
    loop, stop, port = found
    try:
        yield port
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join()


async def _connection(app: Any, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        method, path, _ = head[0].split(" ")
        pairs = [line.partition(":") for line in head[1:] if line]
        headers = [(name.lower().encode("latin-1"), value.strip().encode("latin-1")) for name, _, value in pairs]
        body = await reader.readexactly(int(dict(headers).get(b"content-length", 0)))
        await _run(app, {"type": "http", "method": method, "path": path, "headers": headers}, body, reader, writer)
    finally:
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()


async def _run(
    app: Any, scope: dict[str, Any], body: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: dict[str, Any]) -> None:
        if message["type"] == "http.response.start":
            lines = [f"HTTP/1.1 {message['status']} X".encode(), *(b": ".join(pair) for pair in message["headers"])]
            writer.write(b"\r\n".join([*lines, b"connection: close", b"", b""]))
        else:
            writer.write(message["body"])
        await writer.drain()

    running = asyncio.create_task(app(scope, receive, send))
    gone = asyncio.create_task(reader.read(1))  # the client sends nothing more: this ends when it disconnects
    await asyncio.wait({running, gone}, return_when=asyncio.FIRST_COMPLETED)
    gone.cancel()
    if not running.done():
        running.cancel()
    with suppress(asyncio.CancelledError):
        await running
