"""A WSGI server with one thread per request on a free port of 127.0.0.1, and requests to it."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from http.client import HTTPConnection
from socketserver import ThreadingMixIn
from typing import TYPE_CHECKING, Any, NamedTuple
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

if TYPE_CHECKING:
    from wsgiref.types import WSGIApplication


class _Server(ThreadingMixIn, WSGIServer):
    daemon_threads = False  # server_close() waits for them


class _Quiet(WSGIRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  name of the base class
        pass

    def get_stderr(self) -> Any:
        return _Discard()


class _Discard:
    """Discards the traceback that wsgiref writes for an application that failed on purpose."""

    def write(self, text: str) -> None:
        pass

    def flush(self) -> None:
        pass


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def problem(self) -> dict[str, Any]:
        """The problem document."""
        assert self.headers["content-type"] == "application/problem+json"
        document: dict[str, Any] = json.loads(self.body)
        assert document["status"] == self.status
        return document


@contextmanager
def serving(app: WSGIApplication) -> Iterator[int]:
    """Yields the port on which another thread serves ``app``."""
    server = make_server("127.0.0.1", 0, app, server_class=_Server, handler_class=_Quiet)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def request(
    port: int, method: str, path: str = "/", body: bytes | None = None, headers: dict[str, str] | None = None
) -> Answer:
    with closing(HTTPConnection("127.0.0.1", port, timeout=20)) as connection:
        connection.request(method, path, body, headers or {})
        response = connection.getresponse()
        content = response.read()
        return Answer(response.status, {name.lower(): value for name, value in response.getheaders()}, content)
