"""Refusals as problem documents (RFC 9457): the same for ASGI and WSGI. No I/O."""

from __future__ import annotations

import json
from http import HTTPStatus
from typing import Final, NamedTuple

from holdfast.errors import AcquireTimeout, StaleToken
from holdfast.fencing.http.header import NAME

_TYPE: Final = "urn:holdfast:problem:"
_RETRY_AFTER: Final = 1  # seconds: most guards are left by then


class Problem(NamedTuple):
    """A response instead of the application's."""

    status: HTTPStatus
    body: bytes
    headers: tuple[tuple[str, str], ...]

    @property
    def status_line(self) -> str:
        return f"{self.status.value} {self.status.phrase}"

    def body_for(self, method: str) -> bytes:
        """A response to HEAD has the headers only."""
        return b"" if method == "HEAD" else self.body


def stale(error: StaleToken) -> Problem:
    """409: the lock has moved on."""
    title = "A newer holder of the lock has written already"
    facts = {"resource": error.resource, "token": str(error.token), "seen": str(error.seen)}
    return _problem(HTTPStatus.CONFLICT, "stale-token", title, str(error), **facts)


def missing(resource: str) -> Problem:
    """428: this request must carry a token."""
    detail = f"this request changes {resource!r}: send the header {NAME} with the token of your lock"
    return _problem(HTTPStatus.PRECONDITION_REQUIRED, "token-required", "A fencing token is required", detail)


def malformed(reason: str) -> Problem:
    """400: the header cannot be read."""
    detail = f"the header {NAME} is malformed: {reason}"
    return _problem(HTTPStatus.BAD_REQUEST, "malformed-token", "The fencing token is malformed", detail)


def other_resource(presented: str, expected: str) -> Problem:
    """400: the token is for something else than what the request touches."""
    detail = f"the header {NAME} is for {presented!r}, but this request touches {expected!r}"
    return _problem(HTTPStatus.BAD_REQUEST, "other-resource", "The fencing token is for another resource", detail)


def not_accepted() -> Problem:
    """403: this caller may not present this token."""
    detail = "this caller may not present this fencing token"
    return _problem(HTTPStatus.FORBIDDEN, "token-not-accepted", "The fencing token is not accepted", detail)


def occupied(error: AcquireTimeout) -> Problem:
    """503: another request stayed inside the guard."""
    title = "Another request is still writing"
    problem = _problem(HTTPStatus.SERVICE_UNAVAILABLE, "occupied", title, str(error))
    return problem._replace(headers=(*problem.headers, ("Retry-After", str(_RETRY_AFTER))))


def _problem(status: HTTPStatus, kind: str, title: str, detail: str, **facts: str) -> Problem:
    document = {"type": _TYPE + kind, "title": title, "status": status.value, "detail": detail, **facts}
    body = json.dumps(document).encode()  # ASCII only: names are escaped
    headers = (("Content-Type", "application/problem+json"), ("Content-Length", str(len(body))))
    return Problem(status, body, (*headers, ("Cache-Control", "no-store")))
