"""Several calls in one buffer on one blocking connection, and their answers."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from hiredis import ReplyError

from holdfast.engines.redis.connections.wire import Wire
from holdfast.engines.redis.dialect.packing import pack
from holdfast.engines.redis.dialect.replication import unacknowledged, wait_for_replicas
from holdfast.engines.redis.dialect.replies import checked, is_unknown_script
from holdfast.engines.redis.dialect.requests import Call

#: Calls in one buffer. (A server takes turns between its clients every 16 KiB, some 40 calls.)
MOST_CALLS: Final = 500
#: Scripts for many leases each in one buffer: one after another, 50,000 leases at a round trip of 0.1 s would take
#: longer to renew than a ttl of 30 s allows. Few enough to be answered within the timeout of one request.
MOST_SCRIPTS: Final = 8
_UNTRACKED: Final = pack(("CLIENT", "CACHING", "NO"))


class InFlight(NamedTuple):
    """Calls that were sent, whose answers are still to be read. ``timeout``: what a round trip may take; ``tracked``:
    the connection tracks what it reads."""

    wire: Wire
    calls: Sequence[Call]
    replicas: int
    timeout: float
    tracked: bool


def send(wire: Wire, calls: Sequence[Call], replicas: int, timeout: float, *, tracked: bool) -> InFlight:
    """Send ``calls``, and after all of them the question how many replicas have acknowledged."""
    return _send(wire, calls, [call.packed for call in calls], replicas, timeout, tracked)


def receive(sent: InFlight, deadline: float) -> list[Any]:
    """The answers to what ``send`` sent, errors as they came. A script that the server did not know is sent again."""
    answers = _receive(sent, deadline)
    unknown = [at for at, answer in enumerate(answers) if is_unknown_script(answer)]
    if unknown:
        calls = [sent.calls[at] for at in unknown]
        # The server has answered, and another one may have used up the time: this is a round trip of its own.
        deadline = time.monotonic() + sent.timeout
        again = _send(sent.wire, calls, _by_source(calls), sent.replicas, sent.timeout, sent.tracked)
        for at, answer in zip(unknown, _receive(again, deadline), strict=True):
            answers[at] = answer
    return answers


def _by_source(calls: Sequence[Call]) -> list[bytes]:
    """The first call of each script carries its source; the server knows it when it comes to the others."""
    known = set[str]()
    packed = []
    for call in calls:
        packed.append(call.packed if call.script.sha in known else call.by_source())
        known.add(call.script.sha)
    return packed


def _send(
    wire: Wire, calls: Sequence[Call], packed: Sequence[bytes], replicas: int, timeout: float, tracked: bool
) -> InFlight:
    parts = list[bytes]()
    for call, request in zip(calls, packed, strict=True):
        parts += _around(call, request) if tracked else (request,)
    if replicas:
        parts.append(wait_for_replicas(replicas, timeout))
    wire.send(b"".join(parts), timeout, len(parts))
    return InFlight(wire, calls, replicas, timeout, tracked)


def _around(call: Call, request: bytes) -> Sequence[bytes]:
    """On a connection that tracks what it reads: each read inside a script would track all keys of that script anew, so
    scripts are excepted, and their keys are tracked by one read afterwards. Afterwards, because a write ends it."""
    if call.plain:
        return (request,)
    return (_UNTRACKED, request, pack(("EXISTS", *call.watched))) if call.watched else (_UNTRACKED, request)


def _receive(sent: InFlight, deadline: float) -> list[Any]:
    wire, answers = sent.wire, list[Any]()
    for call in sent.calls:
        around = sent.tracked and not call.plain
        if around:
            wire.late_reply(deadline)
        answers.append(wire.late_reply(deadline))
        if around and call.watched:
            wire.late_reply(deadline)
    if sent.replicas:
        acknowledged = checked(wire.late_reply(deadline))
        if acknowledged < sent.replicas:
            failure = unacknowledged(acknowledged, sent.replicas)
            return [answer if answer.__class__ is ReplyError else failure for answer in answers]
    return answers
