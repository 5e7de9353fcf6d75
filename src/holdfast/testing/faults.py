"""Faults for :class:`~holdfast.testing.proxy.FaultProxy`: on which request, and what happens to it or to its reply."""

from __future__ import annotations

import asyncio
import hashlib
import re
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal, Protocol

from holdfast.engines.redis import scripts

Words = tuple[bytes, ...]
Predicate = Callable[[Words], bool]
Side = Literal["request", "reply"]
Kind = Literal[
    "notice",
    "drop_reply_and_reset",
    "black_hole",
    "drop_request_and_reset",
    "drop_request_black_hole",
    "delay",
    "duplicate",
    "slice",
]

#: Commands that set up a connection. A rule matches one of these only if it names it.
HANDSHAKE: Final = frozenset({b"HELLO", b"AUTH", b"CLIENT", b"SELECT", b"READONLY"})
_SHA: Final = re.compile(r"[0-9a-fA-F]{40}")


class HasDigest(Protocol):
    """A script object with its SHA1, such as holdfast's or redis-py's."""

    @property
    def sha(self) -> str: ...


@dataclass(frozen=True, slots=True)
class Fault:
    kind: Kind
    side: Side = "reply"
    seconds: float | None = None


class Rule:
    """One armed fault. A test can wait until it has fired.

    Counters and matching belong to the proxy's loop; ``wait``, ``fired``, ``hits``, ``release`` and ``cancel`` are for
    any thread.
    """

    def __init__(self, fault: Fault, matches: Predicate, nth: int, times: int | None) -> None:
        self.fault = fault
        self.hits: list[Words] = []  #: the requests that it was applied to
        self._matches = matches
        self._first = nth
        self._last = None if times is None else nth + times - 1
        self._seen = 0
        self._cancelled = False
        self._fired = threading.Event()
        self._released = threading.Event()

    @property
    def fired(self) -> bool:
        return self._fired.is_set()

    def wait(self, timeout: float) -> bool:
        """True once the fault has fired for the first time; False after ``timeout`` seconds."""
        return self._fired.wait(timeout)

    def release(self) -> None:
        """Let what ``delay`` holds back pass, now and from now on."""
        self._released.set()

    def cancel(self) -> None:
        """Do not fire again."""
        self._cancelled = True

    # ---- for the proxy

    def claims(self, request: Words) -> bool:
        """Count ``request`` if it matches. Returns whether the fault applies to it."""
        if self._cancelled or not self._matches(request):
            return False
        self._seen += 1
        return self._seen >= self._first and (self._last is None or self._seen <= self._last)

    def forget_one(self) -> None:
        """The request did not run after all (NOSCRIPT): the next one takes its number."""
        self._seen -= 1

    def fire(self, request: Words) -> None:
        self.hits.append(request)
        self._fired.set()

    async def held(self) -> None:
        """Wait until the delay is over or released."""
        loop = asyncio.get_running_loop()
        end = None if self.fault.seconds is None else loop.time() + self.fault.seconds
        while not self._released.is_set() and (end is None or loop.time() < end):
            await asyncio.sleep(0.002)  # polls: the event belongs to threads, not to this loop


def matcher(command: str | None, script: str | HasDigest | None, containing: bytes | str | None) -> Predicate:
    """All conditions that are given must hold."""
    wanted = None if command is None else command.upper().encode()
    digests = None if script is None else _digests(script)
    part = containing.encode() if isinstance(containing, str) else containing

    def matches(request: Words) -> bool:
        verb = request[0].upper() if request else b""
        if verb != wanted and (wanted is not None or verb in HANDSHAKE):
            return False
        if digests is not None and _script_of(verb, request) not in digests:
            return False
        return part is None or any(part in word for word in request)

    return matches


def _digests(script: str | HasDigest) -> frozenset[bytes]:
    if isinstance(script, str) and not _SHA.fullmatch(script):
        script = getattr(scripts, script.upper())
    sha = (script if isinstance(script, str) else script.sha).lower()
    # An acquire is served by either of two scripts: which one, is not for a test to know.
    acquires = (scripts.ACQUIRE.sha, scripts.ACQUIRE_FREE.sha)
    return frozenset(each.encode() for each in (acquires if sha == scripts.ACQUIRE.sha else (sha,)))


def _script_of(verb: bytes, request: Words) -> bytes | None:
    if verb in (b"EVALSHA", b"EVALSHA_RO") and len(request) > 1:
        return request[1].lower()
    if verb in (b"EVAL", b"EVAL_RO") and len(request) > 1:
        return hashlib.sha1(request[1], usedforsecurity=False).hexdigest().encode()
    return None


class Occasion:
    """``proxy.on(…)``: the selected requests. Each method arms a rule with one fault for them."""

    def __init__(self, arm: Callable[[Rule], None], matches: Predicate, nth: int, times: int | None) -> None:
        self._arm = arm
        self._matches = matches
        self._nth = nth
        self._times = times

    def _rule(self, fault: Fault) -> Rule:
        rule = Rule(fault, self._matches, self._nth, self._times)
        self._arm(rule)
        return rule

    def notice(self) -> Rule:
        """No fault: only report that the request was seen. It is forwarded right after."""
        return self._rule(Fault("notice", "request"))

    def drop_reply_and_reset(self) -> Rule:
        """The server runs it; the reply is dropped and the client's connection reset."""
        return self._rule(Fault("drop_reply_and_reset"))

    def black_hole(self) -> Rule:
        """The server runs it; from its reply on nothing passes in either direction. The connection stays open."""
        return self._rule(Fault("black_hole"))

    def drop_request_and_reset(self) -> Rule:
        """The server never sees it; the client's connection is reset."""
        return self._rule(Fault("drop_request_and_reset", "request"))

    def drop_request_black_hole(self) -> Rule:
        """The server never sees it, nor anything after it. The connection stays open."""
        return self._rule(Fault("drop_request_black_hole", "request"))

    def delay(self, seconds: float | None = None, *, side: Side = "reply") -> Rule:
        """Hold the reply (or the request) back, and what follows it in that direction: for ``seconds``, or until
        ``rule.release()``. A request held back reaches the server even if the client has disconnected meanwhile."""
        return self._rule(Fault("delay", side, seconds))

    def duplicate(self) -> Rule:
        """Pass it as usual and keep a copy, which ``proxy.release_duplicates()`` sends on a connection of its own."""
        return self._rule(Fault("duplicate", "request"))

    def slice(self) -> Rule:
        """Pass request and reply in pieces of one byte."""
        return self._rule(Fault("slice"))
