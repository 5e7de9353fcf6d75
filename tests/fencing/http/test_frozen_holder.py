"""A client frozen past its lease sends its write when it wakes up, and the server refuses it."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import holdfast
from holdfast.fencing import MemoryFence
from holdfast.fencing.http import AsgiMiddleware, WsgiMiddleware, header
from tests.fencing.frozen import late_write
from tests.fencing.http.asgi_server import serving_asgi
from tests.fencing.http.server import request, serving

if TYPE_CHECKING:
    from wsgiref.types import StartResponse

_CLIENT = """
import http.client
from holdfast.fencing.http import header
fenced = sys.argv[3] == "fenced"
def request(method, body=None):
    connection = http.client.HTTPConnection("127.0.0.1", int(sys.argv[2]), timeout=20)
    connection.request(method, "/", body, header("account", lease) if fenced else {})
    response = connection.getresponse()
    content = response.read()
    connection.close()
    if response.status == 409:
        raise StaleToken("account", token=lease.token, seen=lease.token + 1)
    assert response.status == 200, response.status
    return content
"""
_LOAD = _CLIENT + "value = int(request('GET'))"
_STORE = "request('PUT', b'%d' % (value + 10))"


class Account:
    """A value behind HTTP: GET reads it, PUT replaces it."""

    def __init__(self) -> None:
        self.balance = 100

    async def asgi(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["method"] == "PUT":
            self.balance = int((await receive())["body"])
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"%d" % self.balance})

    def wsgi(self, environ: dict[str, Any], start_response: StartResponse) -> Iterable[bytes]:
        if environ["REQUEST_METHOD"] == "PUT":
            self.balance = int(environ["wsgi.input"].read(int(environ["CONTENT_LENGTH"])))
        start_response("200 OK", [("Content-Type", "text/plain")])
        return [b"%d" % self.balance]


def _served(account: Account, gateway: str, fenced: bool) -> AbstractContextManager[int]:
    """Yields the port on which the account is served."""
    if gateway == "asgi":
        return serving_asgi(AsgiMiddleware(account.asgi, MemoryFence(), resource="account") if fenced else account.asgi)
    return serving(WsgiMiddleware(account.wsgi, MemoryFence(), resource="account") if fenced else account.wsgi)


@pytest.mark.parametrize("gateway", ["asgi", "wsgi"])
@pytest.mark.parametrize("mode, outcome, left", [("fenced", "refused", 105), ("plain", "wrote", 110)])
def test_fence_refuses_a_late_request_that_otherwise_loses_the_newer_update(
    gateway: str, mode: str, outcome: str, left: int, tmp_path: Path
) -> None:
    account = Account()
    with _served(account, gateway, mode == "fenced") as port:

        def deposit_5(lease: holdfast.Lease) -> None:
            headers = header("account", lease) if mode == "fenced" else {}
            balance = int(request(port, "GET", headers=headers).body)
            assert request(port, "PUT", body=b"%d" % (balance + 5), headers=headers).status == 200

        assert late_write(tmp_path, _LOAD, _STORE, port, mode, meanwhile=deposit_5) == outcome
    assert account.balance == left
