"""A fence over HTTP: the token travels in a header, and middleware holds the guard during the request.

The client sends ``Holdfast-Fence: "orders";token="1790…";owner="…"``. The server's middleware checks it and holds back
other requests for the resource until the response is complete. A refusal is a problem document (RFC 9457):
409 for an older token, 428 if the header is required and missing, 400 if it is malformed or names another resource.

* ``header.py``: the header, written and read (RFC 9651). Read this first.
* ``policy.py``: which request needs which token. No I/O.
* ``problem.py``: the refusals.
* ``asgi.py``, ``wsgi.py``: the middleware.
"""

from __future__ import annotations

from holdfast.fencing.http.asgi import AsgiMiddleware
from holdfast.fencing.http.header import NAME, Presented, header, parse
from holdfast.fencing.http.policy import UNSAFE_METHODS
from holdfast.fencing.http.wsgi import WsgiMiddleware

__all__ = ["NAME", "UNSAFE_METHODS", "AsgiMiddleware", "Presented", "WsgiMiddleware", "header", "parse"]
