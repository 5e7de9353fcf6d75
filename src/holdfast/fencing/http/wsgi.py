"""Middleware for WSGI applications (Flask, Django, Bottle, …)."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final

from holdfast._config.durations import Duration
from holdfast.errors import AcquireTimeout, StaleToken
from holdfast.fencing.base import Fence
from holdfast.fencing.guard import Guard
from holdfast.fencing.http import problem
from holdfast.fencing.http.header import NAME, Presented
from holdfast.fencing.http.policy import DEFAULT_TIMEOUT, PRESENTED, UNSAFE_METHODS, Policy
from holdfast.fencing.http.problem import Problem

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIApplication

Environ = dict[str, Any]

_VARIABLE: Final = "HTTP_" + NAME.upper().replace("-", "_")


class WsgiMiddleware:
    """Checks the header ``Holdfast-Fence`` and holds the guard of ``fence`` until the response has been sent.

    ``resource`` is what a request touches: one name, or a function of the environ (None: nothing that is fenced). The
    client's header must name the same. ``required`` says which methods must carry a token: True, False, or a
    collection, by default the unsafe ones; any other request with a token is guarded too. ``timeout`` bounds the wait
    for another request inside the guard.

    **For authenticated callers only: place it inside of what authenticates.** A forged token of 2^63 - 1 locks every
    holder out for ever. ``accept(environ, presented)`` returns False for a token that this caller may not present
    (403).

    Guarantee: the application runs for a token only if no newer one was seen, and none is accepted until the server
    has closed the response; also if the application raises while it makes the body. The application finds what was
    presented in ``environ["holdfast.fence"]``, to pass it on to a fence of its own. With ``fence=None`` the header is
    only checked and handed on in this way.

    Not guaranteed: anything about other processes with a ``MemoryFence``, or other hosts with a ``FileFence``. A server
    that breaks the WSGI rule to call ``close()`` keeps the guard until the response is garbage.
    """

    def __init__(
        self,
        app: WSGIApplication,
        fence: Fence | None,
        *,
        resource: str | Callable[[Environ], str | None],
        required: bool | Collection[str] = UNSAFE_METHODS,
        accept: Callable[[Environ, Presented], bool] | None = None,
        timeout: Duration | None = DEFAULT_TIMEOUT,
    ) -> None:
        self._app = app
        self._policy: Policy[Environ] = Policy(fence, resource, required, accept, timeout)

    def __call__(self, environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        """Handle one request, as WSGI says."""
        # A server joins several lines with commas. That is no valid value, so it is refused as malformed.
        values = [environ[_VARIABLE]] if _VARIABLE in environ else []
        decided = self._policy.decide(environ, environ["REQUEST_METHOD"], values)
        if decided is None:
            return self._app(environ, start_response)
        if isinstance(decided, Problem):
            return _respond(decided, environ, start_response)
        return self._guarded(decided, environ, start_response)

    def _guarded(self, presented: Presented, environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        environ[PRESENTED] = presented
        guard = self._policy.guard(presented)
        if guard is None:
            return self._app(environ, start_response)
        try:
            guard.__enter__()
        except StaleToken as error:
            return _respond(problem.stale(error), environ, start_response)
        except AcquireTimeout as error:
            return _respond(problem.occupied(error), environ, start_response)
        # If a signal interrupts between these two lines, the guard becomes garbage, which unlocks it.
        try:
            return _GuardedBody(self._app(environ, start_response), guard)
        except BaseException:
            guard.__exit__(*sys.exc_info())
            raise


class _GuardedBody:
    """The application's body. The guard is left when the server closes it: a body may be a generator that writes."""

    def __init__(self, body: Iterable[bytes], guard: Guard) -> None:
        self._body = body
        self._chunks: Iterator[bytes] | None = None
        self._guard = guard

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        if self._chunks is None:
            self._chunks = iter(self._body)
        return next(self._chunks)

    def close(self) -> None:
        try:
            close = getattr(self._body, "close", None)
            if close is not None:
                close()  # the application's own clean-up is still guarded
        finally:
            self._guard.__exit__(None, None, None)


def _respond(refusal: Problem, environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
    start_response(refusal.status_line, list(refusal.headers))
    return [refusal.body_for(environ["REQUEST_METHOD"])]
