"""Decides which token a request needs, from its header and the configuration. No I/O."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Final, Generic, TypeVar, cast

from holdfast._config import names
from holdfast._config.durations import Duration, check_timeout
from holdfast.errors import UsageError
from holdfast.fencing.base import Fence
from holdfast.fencing.guard import Guard
from holdfast.fencing.http import problem
from holdfast.fencing.http.header import Presented, parse
from holdfast.fencing.http.problem import Problem
from holdfast.fencing.rule import Lease

#: Methods that are not safe by IANA's registry of HTTP methods (WebDAV's too), and so may change the resource.
UNSAFE_METHODS: Final = frozenset(
    {
        *("POST", "PUT", "PATCH", "DELETE", "CONNECT"),
        *("ACL", "BASELINE-CONTROL", "BIND", "CHECKIN", "CHECKOUT", "COPY", "LABEL", "LINK", "LOCK", "MERGE"),
        *("MKACTIVITY", "MKCALENDAR", "MKCOL", "MKREDIRECTREF", "MKWORKSPACE", "MOVE", "ORDERPATCH", "PROPPATCH"),
        *("REBIND", "UNBIND", "UNCHECKOUT", "UNLINK", "UNLOCK", "UPDATE", "UPDATEREDIRECTREF", "VERSION-CONTROL"),
    }
)
#: Under this key of the ASGI scope or the WSGI environ the application finds what was presented.
PRESENTED: Final = "holdfast.fence"
#: How long a request waits for another one inside the guard, in seconds: less than the usual timeout of clients.
DEFAULT_TIMEOUT: Final = 10.0

Request = TypeVar("Request")


class Policy(Generic[Request]):
    """The settings of a middleware. ``Request`` is the ASGI scope or the WSGI environ."""

    def __init__(
        self,
        fence: Fence | None,
        resource: str | Callable[[Request], str | None],
        required: bool | Collection[str],
        accept: Callable[[Request, Presented], bool] | None,
        timeout: Duration | None,
    ) -> None:
        if fence is not None and not callable(getattr(fence, "guard", None)):
            raise UsageError(
                f"the middleware holds the guard of a MemoryFence or a FileFence, and {type(fence).__name__} has none: "
                f"pass None, and give what the request's {PRESENTED!r} holds to that fence, inside the application"
            )
        if isinstance(required, str):
            raise UsageError("required is True, False or a collection of methods, not a str: required={'PUT'}")
        self.fence = fence
        self.timeout = check_timeout(timeout)
        self._resource = resource if callable(resource) else names.validate(resource, what="resource name")
        self._required = required if isinstance(required, bool) else frozenset(word.upper() for word in required)
        self._accept = accept

    def decide(self, request: Request, method: str, headers: Sequence[str]) -> Presented | Problem | None:
        """``headers``: the values of all lines of our header. None: the request passes without a guard.

        The server decides which resource the request touches. A client could evade the fence by naming another one.
        """
        resource = self._resource(request) if callable(self._resource) else self._resource
        if resource is None:
            return None
        names.validate(resource, what="resource name")
        if not headers:
            return problem.missing(resource) if self._requires(method) else None
        if len(headers) > 1:
            return problem.malformed("there is more than one")
        try:
            presented = parse(headers[0])
        except ValueError as error:
            return problem.malformed(str(error))
        if presented.resource != resource:
            return problem.other_resource(presented.resource, resource)
        if self._accept is not None and not self._accept(request, presented):
            return problem.not_accepted()
        return presented

    def guard(self, presented: Presented) -> Guard | None:
        """The guard of the fence for what was presented; None without a fence."""
        if self.fence is None:
            return None
        if presented.mode == "read":
            reader = cast("Lease", presented)  # with an owner: ``parse`` refuses a read without one
            return self.fence.guard(presented.resource, reader, timeout=self.timeout)
        return self.fence.guard(presented.resource, presented.token, presented.owner, timeout=self.timeout)

    def _requires(self, method: str) -> bool:
        return self._required if isinstance(self._required, bool) else method.upper() in self._required
