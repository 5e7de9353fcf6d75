"""AsgiMiddleware: refusals, and a guard that stays until the application has returned or failed."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Awaitable, Callable
from contextlib import closing
from http.client import HTTPConnection
from typing import Any, NamedTuple

import pytest

from holdfast.fencing import Fence, FileFence, MemoryFence
from holdfast.fencing.http import AsgiMiddleware, Presented, header
from tests.fencing.http.asgi_server import serving_asgi

Headers = dict[str, str] | list[tuple[bytes, bytes]]


class Answer(NamedTuple):
    status: int
    headers: dict[bytes, bytes]
    body: bytes

    @property
    def problem(self) -> dict[str, Any]:
        assert self.headers[b"content-type"] == b"application/problem+json"
        assert int(self.headers[b"content-length"]) == len(self.body)
        document: dict[str, Any] = json.loads(self.body)
        assert document["status"] == self.status
        return document


def _scope(method: str, headers: Headers, path: str = "/") -> dict[str, Any]:
    lines = [(k.encode(), v.encode()) for k, v in headers.items()] if isinstance(headers, dict) else headers
    return {"type": "http", "method": method, "path": path, "headers": lines}


async def _nothing() -> dict[str, Any]:
    return {"type": "http.request", "body": b"", "more_body": False}


async def call(app: Any, method: str, headers: Headers, path: str = "/") -> Answer:
    """Makes one request the way a server does."""
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    await app(_scope(method, headers, path), _nothing, send)
    assert sent[0]["type"] == "http.response.start"
    return Answer(sent[0]["status"], dict(sent[0]["headers"]), b"".join(part["body"] for part in sent[1:]))


async def fine(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"fine"})


@pytest.fixture(params=["memory", "file"])
def fence(request: pytest.FixtureRequest, tmp_path: Any) -> Fence:
    return MemoryFence() if request.param == "memory" else FileFence(tmp_path / "fence")


async def _occupied(fence: Fence) -> bool:
    try:
        async with fence.guard("orders", 9, timeout=0):
            return False
    except TimeoutError:
        return True


# ---- refusals


async def test_older_token_is_a_conflict(fence: Fence) -> None:
    app = AsgiMiddleware(fine, fence, resource="orders")
    passing: list[tuple[int, str | None]] = [(5, "a"), (5, "a"), (6, "b")]
    for token, owner in passing:
        assert (await call(app, "PUT", header("orders", token, owner))).body == b"fine"
    stale: list[tuple[int, str | None]] = [(5, "a"), (6, "c"), (6, None)]
    for token, owner in stale:
        refused = await call(app, "PUT", header("orders", token, owner))
        assert (refused.status, refused.problem["seen"]) == (409, "6")


async def test_stale_writer_between_read_and_write_of_the_new_holder_is_refused(fence: Fence) -> None:
    app = AsgiMiddleware(fine, fence, resource="orders")
    assert (await call(app, "PUT", header("orders", 1, "old"))).status == 200
    assert (await call(app, "GET", header("orders", 2, "new"))).status == 200
    assert (await call(app, "PUT", header("orders", 1, "old"))).status == 409
    assert (await call(app, "PUT", header("orders", 2, "new"))).status == 200


async def test_missing_malformed_and_wrong_headers_are_refused() -> None:
    app = AsgiMiddleware(fine, MemoryFence(), resource="orders", accept=lambda scope, presented: presented.token < 99)
    assert (await call(app, "PUT", {})).problem["type"] == "urn:holdfast:problem:token-required"
    assert (await call(app, "GET", {})).status == 200
    assert (await call(app, "GET", {"holdfast-fence": "?"})).problem["type"] == "urn:holdfast:problem:malformed-token"
    line = (b"HOLDFAST-fence", header("orders", 5)["Holdfast-Fence"].encode())
    assert (await call(app, "PUT", [line])).status == 200
    assert (await call(app, "PUT", [line, line])).status == 400
    assert (await call(app, "PUT", [(b"holdfast-fence", b'"caf\xe9";token="5"')])).status == 400
    assert (await call(app, "PUT", header("other", 5))).problem["type"] == "urn:holdfast:problem:other-resource"
    assert (await call(app, "PUT", header("orders", 99))).status == 403
    assert (await call(app, "PUT", header("orders", 6))).status == 200
    head = await call(app, "HEAD", {"holdfast-fence": "?"})
    assert (head.status, head.body) == (400, b"")


async def test_non_ascii_names_are_returned_in_a_problem() -> None:
    app = AsgiMiddleware(fine, MemoryFence(), resource=lambda scope: str(scope["path"]))
    assert (await call(app, "PUT", header("/café", 5, "ü"), "/café")).status == 200
    refused = await call(app, "PUT", header("/café", 4, "ü"), "/café")
    assert refused.problem["resource"] == "/café"


async def test_application_sees_only_a_checked_token() -> None:
    seen: list[object] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        seen.append(scope.get("holdfast.fence"))
        await fine(scope, receive, send)

    for fence in (None, MemoryFence()):
        middleware = AsgiMiddleware(app, fence, resource="orders", required=False)
        await call(middleware, "PUT", header("orders", 5, "a"))
        await call(middleware, "PUT", {})
    assert seen == [Presented("orders", 5, "a"), None] * 2


@pytest.mark.parametrize("kind", ["websocket", "lifespan"])
async def test_other_scopes_pass_unchanged(kind: str) -> None:
    seen: list[Any] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        seen.append((scope, receive, send))

    scope, receive, send = {"type": kind}, _nothing, _nothing
    await AsgiMiddleware(app, MemoryFence(), resource="orders", required=True)(scope, receive, send)  # type: ignore[arg-type]
    assert seen == [(scope, receive, send)]


# ---- how long the guard stays


class Streaming:
    """Sends the first part of its body and waits; the test ends the wait or the application."""

    def __init__(self) -> None:
        self.streaming = asyncio.Event()
        self.go_on = asyncio.Event()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"first ", "more_body": True})
        self.streaming.set()
        await self.go_on.wait()
        await send({"type": "http.response.body", "body": b"second"})


async def test_guard_stays_until_the_body_was_sent_and_other_requests_wait_or_get_503(fence: Fence) -> None:
    app = Streaming()
    first = asyncio.create_task(call(AsgiMiddleware(app, fence, resource="orders"), "PUT", header("orders", 5)))
    await app.streaming.wait()
    assert await _occupied(fence)
    refused = await call(AsgiMiddleware(fine, fence, resource="orders", timeout=0), "PUT", header("orders", 6))
    assert (refused.status, refused.headers[b"retry-after"]) == (503, b"1")
    waiting = asyncio.create_task(call(AsgiMiddleware(fine, fence, resource="orders"), "PUT", header("orders", 7)))
    app.go_on.set()
    assert (await first).body == b"first second"
    assert (await waiting).status == 200
    assert not await _occupied(fence)


async def _cancelled(running: asyncio.Task[Answer], app: Streaming) -> None:
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running


async def _disconnected(running: asyncio.Task[Answer], app: Streaming) -> None:
    """A server reports the disconnected client to the application: its next send raises."""
    app.go_on.set()
    with pytest.raises(OSError, match="gone"):
        await running


@pytest.mark.parametrize("end", [_cancelled, _disconnected])
async def test_ended_application_releases_the_guard(
    end: Callable[[asyncio.Task[Answer], Streaming], Awaitable[None]], fence: Fence
) -> None:
    app = Streaming()

    async def request() -> Answer:
        async def send(message: Any) -> None:
            if message.get("body") == b"second":
                raise OSError("the client is gone")

        middleware = AsgiMiddleware(app, fence, resource="orders")
        await middleware(_scope("PUT", header("orders", 5)), _nothing, send)
        raise AssertionError("it should not get here")

    running = asyncio.create_task(request())
    await app.streaming.wait()
    assert await _occupied(fence)
    await end(running, app)
    assert not await _occupied(fence)


async def test_request_cancelled_while_waiting_leaves_the_fence_free(fence: Fence) -> None:
    async with fence.guard("orders", 5):
        waiting = asyncio.create_task(call(AsgiMiddleware(fine, fence, resource="orders"), "PUT", header("orders", 6)))
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
    assert not await _occupied(fence)


async def test_error_of_the_application_propagates(fence: Fence) -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        raise LookupError("on purpose")

    with pytest.raises(LookupError, match="on purpose"):
        await call(AsgiMiddleware(app, fence, resource="orders"), "PUT", header("orders", 5))
    assert not await _occupied(fence)


def test_disconnected_client_releases_the_guard() -> None:
    """Over a socket, where the server cancels the application."""
    fence, inside = MemoryFence(), threading.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        inside.set()
        await asyncio.Event().wait()  # until it is cancelled

    with serving_asgi(AsgiMiddleware(app, fence, resource="orders")) as port:
        with closing(HTTPConnection("127.0.0.1", port, timeout=20)) as connection:
            connection.request("PUT", "/", headers=header("orders", 5))
            assert inside.wait(20)
            with pytest.raises(TimeoutError), fence.guard("orders", 6, timeout=0):
                raise AssertionError("let in while the other request was inside")
        with fence.guard("orders", 6, timeout=20):
            pass
