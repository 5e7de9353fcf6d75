"""Middleware for ASGI applications (Starlette, FastAPI, Django, Litestar, …)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, MutableMapping
from contextlib import AsyncExitStack
from typing import Any, Final

from holdfast._config.durations import Duration
from holdfast.errors import AcquireTimeout, StaleToken
from holdfast.fencing.base import Fence
from holdfast.fencing.http import problem
from holdfast.fencing.http.header import NAME, Presented
from holdfast.fencing.http.policy import DEFAULT_TIMEOUT, PRESENTED, UNSAFE_METHODS, Policy
from holdfast.fencing.http.problem import Problem

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]

_HEADER: Final = NAME.lower().encode()


class AsgiMiddleware:
    """Checks the header ``Holdfast-Fence`` and holds the guard of ``fence`` until the application has returned.

    ``resource`` is what a request touches: one name, or a function of the scope (None: nothing that is fenced). The
    client's header must name the same. ``required`` says which methods must carry a token: True, False, or a
    collection, by default the unsafe ones; any other request with a token is guarded too. ``timeout`` bounds the wait
    for another request inside the guard.

    **For authenticated callers only: place it inside of what authenticates.** A forged token of 2^63 - 1 locks every
    holder out for ever. ``accept(scope, presented)`` returns False for a token that this caller may not present (403).

    Guarantee: the application runs for a token only if no newer one was seen, and none is accepted until it has
    returned, with its streamed body and its background tasks; also if it raises, or is cancelled because the client
    is gone. The application finds what was presented in ``scope["holdfast.fence"]``, to pass it on to a fence of its
    own. With ``fence=None`` the header is only checked and handed on in this way.

    Not guaranteed: anything about other servers. A ``MemoryFence`` is for one process, a ``FileFence`` for one host.
    Websockets pass unguarded.
    """

    def __init__(
        self,
        app: Application,
        fence: Fence | None,
        *,
        resource: str | Callable[[Scope], str | None],
        required: bool | Collection[str] = UNSAFE_METHODS,
        accept: Callable[[Scope, Presented], bool] | None = None,
        timeout: Duration | None = DEFAULT_TIMEOUT,
    ) -> None:
        self._app = app
        self._policy: Policy[Scope] = Policy(fence, resource, required, accept, timeout)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request, as ASGI says."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        values = [value.decode("latin-1") for name, value in scope["headers"] if name.lower() == _HEADER]
        decided = self._policy.decide(scope, scope["method"], values)
        if decided is None:
            await self._app(scope, receive, send)
        elif isinstance(decided, Problem):
            await _respond(decided, scope, send)
        else:
            await self._guarded(decided, scope, receive, send)

    async def _guarded(self, presented: Presented, scope: Scope, receive: Receive, send: Send) -> None:
        async with AsyncExitStack() as inside:
            refusal: Problem | None = None
            if (guard := self._policy.guard(presented)) is not None:
                try:
                    await inside.enter_async_context(guard)
                except StaleToken as error:
                    refusal = problem.stale(error)
                except AcquireTimeout as error:
                    refusal = problem.occupied(error)
            if refusal is not None:
                await _respond(refusal, scope, send)
            else:
                # Not in a copy of the scope: outer middleware reads the matched route from this object.
                scope[PRESENTED] = presented
                await self._app(scope, receive, send)


async def _respond(refusal: Problem, scope: Scope, send: Send) -> None:
    headers = [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in refusal.headers]
    await send({"type": "http.response.start", "status": refusal.status.value, "headers": headers})
    await send({"type": "http.response.body", "body": refusal.body_for(scope["method"])})
