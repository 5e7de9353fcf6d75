"""WsgiMiddleware over a socket: refusals, and a guard that stays until the response has been sent."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from contextlib import closing
from http.client import HTTPConnection
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from holdfast.errors import StaleToken, UsageError
from holdfast.fencing import Fence, FileFence, MemoryFence
from holdfast.fencing.http import Presented, WsgiMiddleware, header
from tests.fencing.http.server import Answer, request, serving

if TYPE_CHECKING:
    from wsgiref.types import StartResponse


_PASSING: Final[list[tuple[int, str | None]]] = [(5, "a"), (5, "a"), (6, "b")]
_REFUSED: Final[list[tuple[int, str | None]]] = [(5, "a"), (6, "c"), (6, None)]


def _fine(environ: dict[str, Any], start_response: StartResponse) -> Iterable[bytes]:
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [b"fine"]


def _send(app: Any, *headers: dict[str, str], method: str = "PUT", path: str = "/") -> Answer:
    with serving(app) as port:
        return [request(port, method, path, headers=one) for one in headers][-1]


def _fenced(**settings: Any) -> WsgiMiddleware:
    return WsgiMiddleware(_fine, settings.pop("fence", None) or MemoryFence(), **{"resource": "orders", **settings})


@pytest.fixture(params=["memory", "file"])
def fence(request: pytest.FixtureRequest, tmp_path: Path) -> Fence:
    return MemoryFence() if request.param == "memory" else FileFence(tmp_path / "fence")


# ---- refusals


def test_first_and_newer_tokens_pass_and_older_token_is_a_conflict(fence: Fence) -> None:
    with serving(_fenced(fence=fence)) as port:
        for token, owner in _PASSING:
            assert request(port, "PUT", headers=header("orders", token, owner)).body == b"fine"
        for token, owner in _REFUSED:
            refused = request(port, "PUT", headers=header("orders", token, owner))
            assert refused.status == 409
            assert refused.problem["type"] == "urn:holdfast:problem:stale-token"
            assert (refused.problem["resource"], refused.problem["token"]) == ("orders", str(token))
            assert refused.problem["seen"] == "6"
    with pytest.raises(StaleToken):
        fence.check("orders", 5, "a")


def test_get_with_a_token_raises_the_guard_before_the_read() -> None:
    with serving(_fenced()) as port:
        assert request(port, "PUT", headers=header("orders", 1, "old")).status == 200
        assert request(port, "GET", headers=header("orders", 2, "new")).status == 200
        assert request(port, "PUT", headers=header("orders", 1, "old")).status == 409
        assert request(port, "PUT", headers=header("orders", 2, "new")).status == 200


@pytest.mark.parametrize(
    "required, method, status",
    [
        (None, "GET", 200), (None, "HEAD", 200), (None, "OPTIONS", 200),
        (None, "POST", 428), (None, "PUT", 428), (None, "PATCH", 428), (None, "DELETE", 428), (None, "MOVE", 428),
        (True, "GET", 428), (False, "PUT", 200), ({"get"}, "GET", 428), ({"get"}, "PUT", 200),
    ],
)  # fmt: skip
def test_token_is_required_for_unsafe_methods_or_as_configured(required: Any, method: str, status: int) -> None:
    answer = _send(_fenced(**({} if required is None else {"required": required})), {}, method=method)
    assert answer.status == status
    if status == 428:
        assert answer.problem["type"] == "urn:holdfast:problem:token-required"
        assert "Holdfast-Fence" in answer.problem["detail"]


@pytest.mark.parametrize("value", ["", "5", '"orders"', '"orders";token="x"', '"orders";token="5", "orders";token="6"'])
def test_malformed_header_is_a_bad_request_even_if_optional(value: str) -> None:
    for method in ("PUT", "GET"):
        answer = _send(_fenced(), {"Holdfast-Fence": value}, method=method)
        assert (answer.status, answer.problem["type"]) == (400, "urn:holdfast:problem:malformed-token")


def test_two_header_lines_are_a_bad_request() -> None:
    with serving(_fenced()) as port, closing(HTTPConnection("127.0.0.1", port, timeout=20)) as connection:
        connection.putrequest("PUT", "/")
        for token in (5, 6):
            connection.putheader(*header("orders", token).popitem())
        connection.endheaders()
        assert connection.getresponse().status == 400


def test_token_for_another_resource_is_refused() -> None:
    answer = _send(_fenced(), header("orders", 6, "b"), header("something else", 5, "a"))
    assert (answer.status, answer.problem["type"]) == (400, "urn:holdfast:problem:other-resource")


def test_resource_may_depend_on_the_request() -> None:
    def resource(environ: dict[str, Any]) -> str | None:
        path: str = environ["PATH_INFO"]
        return None if path == "/health" else path

    with serving(_fenced(resource=resource)) as port:
        assert request(port, "POST", "/health").status == 200
        assert request(port, "PUT", "/a", headers=header("/a", 5)).status == 200
        assert request(port, "PUT", "/b", headers=header("/b", 4)).status == 200
        assert request(port, "PUT", "/a", headers=header("/a", 4)).status == 409
        assert request(port, "PUT", "/b", headers=header("/a", 9)).status == 400


def test_token_rejected_by_accept_does_not_raise_the_guard() -> None:
    fence = MemoryFence()

    def accept(environ: dict[str, Any], presented: Presented) -> bool:
        return presented.token < 1000 and environ["HTTP_X_USER"] == "alice"

    with serving(_fenced(fence=fence, accept=accept)) as port:
        forged = request(port, "PUT", headers=header("orders", 2**63 - 1) | {"X-User": "alice"})
        assert (forged.status, forged.problem["type"]) == (403, "urn:holdfast:problem:token-not-accepted")
        assert request(port, "PUT", headers=header("orders", 5) | {"X-User": "mallory"}).status == 403
        assert request(port, "PUT", headers=header("orders", 5) | {"X-User": "alice"}).status == 200


def test_refusal_of_head_has_no_body() -> None:
    answer = _send(_fenced(), {"Holdfast-Fence": "?"}, method="HEAD")
    assert (answer.status, answer.body) == (400, b"")
    assert int(answer.headers["content-length"]) > 0


def test_wrong_settings_are_refused_immediately() -> None:
    with pytest.raises(UsageError, match="has none"):
        _fenced(fence=object())
    with pytest.raises(UsageError, match="collection of methods"):
        _fenced(required="PUT")
    with pytest.raises(ValueError):
        _fenced(resource="")
    with pytest.raises(ValueError):
        _fenced(timeout=-1)


def test_without_a_fence_the_application_sees_the_presented_token() -> None:
    seen: list[object] = []

    def app(environ: dict[str, Any], start_response: StartResponse) -> Iterable[bytes]:
        seen.append(environ.get("holdfast.fence"))
        return _fine(environ, start_response)

    middleware = WsgiMiddleware(app, None, resource="orders", required=False)
    _send(middleware, header("orders", 5, "a"), header("orders", 4, "b"), {})
    assert seen == [("orders", 5, "a"), ("orders", 4, "b"), None]


# ---- how long the guard stays


class Streaming:
    """Sends its body in two parts and waits for the test between them."""

    def __init__(self, failure: BaseException | None = None) -> None:
        self.streaming = threading.Event()
        self.go_on = threading.Event()
        self.closed = False
        self._failure = failure

    def __call__(self, environ: dict[str, Any], start_response: StartResponse) -> Iterable[bytes]:
        start_response("200 OK", [("Content-Type", "text/plain")])
        return _Body(self._parts(), self)

    def _parts(self) -> Iterator[bytes]:
        yield b"first "
        self.streaming.set()
        assert self.go_on.wait(20)
        if self._failure is not None:
            raise self._failure
        yield b"second"


class _Body:
    def __init__(self, parts: Iterator[bytes], app: Streaming) -> None:
        self._parts = parts
        self._app = app

    def __iter__(self) -> Iterator[bytes]:
        return self._parts

    def close(self) -> None:
        self._app.closed = True


def _occupied(fence: MemoryFence) -> bool:
    try:
        with fence.guard("orders", 9, timeout=0):
            return False
    except TimeoutError:
        return True


def test_guard_stays_until_the_whole_body_was_sent() -> None:
    fence, app = MemoryFence(), Streaming()
    with (
        serving(WsgiMiddleware(app, fence, resource="orders", timeout=0)) as port,
        closing(HTTPConnection("127.0.0.1", port, timeout=20)) as connection,
    ):
        connection.request("PUT", "/", headers=header("orders", 5, "a"))
        response = connection.getresponse()
        assert response.read(6) == b"first "  # the application is still sending
        assert _occupied(fence)
        refused = request(port, "PUT", headers=header("orders", 10, "b"))
        app.go_on.set()
        assert response.read() == b"second"
    assert (refused.status, refused.headers["retry-after"]) == (503, "1")
    assert refused.problem["type"] == "urn:holdfast:problem:occupied"
    assert app.closed
    assert not _occupied(fence)


def test_request_waits_for_the_request_inside_the_guard() -> None:
    fence, app = MemoryFence(), Streaming()
    statuses: list[int] = []

    def send(token: int) -> None:
        statuses.append(request(port, "PUT", headers=header("orders", token)).status)

    with serving(WsgiMiddleware(app, fence, resource="orders")) as port:
        threads = [threading.Thread(target=send, args=(token,)) for token in (5, 6)]
        threads[0].start()
        assert app.streaming.wait(20)
        threads[1].start()
        app.go_on.set()
        for thread in threads:
            thread.join()
    assert statuses == [200, 200]
    assert not _occupied(fence)


def test_application_that_fails_in_the_body_releases_the_guard() -> None:
    fence, app = MemoryFence(), Streaming(RuntimeError("on purpose"))
    app.go_on.set()
    _send(WsgiMiddleware(app, fence, resource="orders"), header("orders", 5, "a"))
    assert app.closed
    assert not _occupied(fence)


def test_application_that_fails_before_the_body_releases_the_guard() -> None:
    def app(environ: dict[str, Any], start_response: StartResponse) -> Iterable[bytes]:
        raise KeyboardInterrupt

    fence = MemoryFence()
    middleware = WsgiMiddleware(app, fence, resource="orders")
    environ = {"REQUEST_METHOD": "PUT", "HTTP_HOLDFAST_FENCE": header("orders", 5)["Holdfast-Fence"]}
    with pytest.raises(KeyboardInterrupt):
        middleware(environ, lambda *_: lambda _: None)
    assert not _occupied(fence)


def test_body_whose_close_fails_releases_the_guard() -> None:
    class Body(list[bytes]):
        def close(self) -> None:
            raise RuntimeError("on purpose")

    fence = MemoryFence()
    middleware = WsgiMiddleware(lambda environ, start: Body([b"x"]), fence, resource="orders")
    environ = {"REQUEST_METHOD": "PUT", "HTTP_HOLDFAST_FENCE": header("orders", 5)["Holdfast-Fence"]}
    body: Any = middleware(environ, lambda *_: lambda _: None)
    assert list(body) == [b"x"]
    with pytest.raises(RuntimeError, match="on purpose"):
        body.close()
    assert not _occupied(fence)
    with pytest.raises(RuntimeError):
        body.close()


def test_guard_is_released_with_a_body_that_is_never_closed() -> None:
    fence = MemoryFence()
    middleware = WsgiMiddleware(_fine, fence, resource="orders")
    environ = {"REQUEST_METHOD": "PUT", "HTTP_HOLDFAST_FENCE": header("orders", 5)["Holdfast-Fence"]}
    body: Any = middleware(environ, lambda *_: lambda _: None)
    assert list(body) == [b"fine"]
    with pytest.raises(UsageError), fence.guard("orders", 9, timeout=0):
        raise AssertionError("the guard was left before the response was closed")
    del body
    assert not _occupied(fence)
