"""The engine port: what a lock engine does for the core. A new engine is one new module that fulfils it.

An :class:`Engine` is settings, without I/O. A :class:`Session` is one engine seen from one runtime: a client opens
one for its callers (blocking, asyncio or simulated) and one for its watchdog, which runs on a thread of its own.

Three rules bind every engine:

* **Idempotent per claim.** Each method may be repeated with the same claim, also when an earlier reply was lost:
  the effect is that of one call. A late duplicate of an acquire must not take effect after release or withdraw.
* **Never shorten, never re-create.** ``acquire`` and ``renew`` set expiry := max(current, now + ttl); ``renew`` of a
  claim that is not there answers so and changes nothing.
* **Errors are two.** :class:`RequestFailed` (try again; says whether it may have happened) and
  :class:`holdfast.EngineRefused` (do not). Driver errors are their ``__cause__``.
"""

from __future__ import annotations

import enum
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, NamedTuple, Protocol

from holdfast._runtime.base import Runtime, Wakeup
from holdfast.errors import EngineError


@dataclass(frozen=True, slots=True)
class Guarantees:
    """What an engine gives, as data. ``require={"fencing"}`` checks the bools.

    ``needs_clocks`` names the clocks that must run at the right rate; ``loss_bound`` says how long a holder may
    go on believing after the engine has granted the lock to somebody else, and under which fault.
    """

    cross_process: bool
    cross_host: bool
    fair: bool
    fencing: bool
    survives_restart: bool
    survives_failover: bool
    needs_clocks: str
    loss_bound: str


#: ``LockState.queue`` lists so many waiters at most; ``LockState.waiters`` counts them all.
MOST_WAITERS: Final = 100


@dataclass(frozen=True, slots=True)
class Holder:
    """One owner of a lock. Times are epoch seconds. A foreign owner (another library's) has None where it is silent.

    ``thread``: the name of the thread that acquired it; of the task, on an async client. ``label``: the holder's own,
    from ``connect(label=…)``. ``token``: its fencing token; any token of its grant is accepted by ``break_``. If the
    holder's process has handed the lock from one of its callers to the next without asking the engine (it may for the
    first 10 ms of a grant), ``thread`` and, seen from another client, ``token`` are those of the first of them.
    ``count``: how many times the owner holds it at the engine. holdfast acquires once for all re-entrant handles, so
    it is 1; Redisson counts re-entries there.
    """

    owner: str
    host: str | None = None
    pid: int | None = None
    thread: str | None = None
    program: str | None = None
    since: float | None = None
    until: float | None = None
    token: int | None = None
    count: int | None = None
    label: str | None = None


@dataclass(frozen=True, slots=True)
class Waiter:
    """One claim in the engine's queue for a lock. What the engine does not know of it is None.

    ``owner`` is the text that ``Holder.owner`` will be when the lock is granted to it, or a foreign waiter's own id.
    ``since``: when it joined the queue, in epoch seconds. ``thread`` and ``label`` as for a Holder.
    """

    owner: str
    host: str | None = None
    pid: int | None = None
    thread: str | None = None
    program: str | None = None
    label: str | None = None
    since: float | None = None


@dataclass(frozen=True, slots=True)
class LockState:
    """A lock as the engine saw it a moment ago: information for people, never a basis for exclusion.

    ``waiters`` counts those in the engine's queue; ``queue`` has the first 100 of them, in the order in which the
    engine would serve fair ones. Callers that wait inside a process, behind another caller of the same client, are
    known to that client only, and neither counted nor listed. ``token``: the largest fencing token that the engine has
    reserved for this name. ``remaining``: seconds until the lock expires if it is not renewed; None if it is free or
    does not expire by itself.
    """

    name: str
    holders: tuple[Holder, ...] = ()
    waiters: int = 0
    token: int | None = None
    remaining: float | None = None
    queue: tuple[Waiter, ...] = ()


class Claim:
    """One attempt to hold one name. The engine writes ``owner`` where it writes who holds."""

    __slots__ = (
        "description", "fair", "freed", "name", "owner", "polite", "remains", "replicas", "token", "tokens", "ttl",
        "unresolved", "waiter",
    )  # fmt: skip

    def __init__(
        self,
        name: str,
        owner: str,
        ttl: float,
        tokens: int = 1,
        fair: bool = False,
        polite: bool = False,
        replicas: int = 0,
        description: bytes = b"{}",
    ) -> None:
        self.name = name  #: the engine's name: namespace included
        self.owner = owner  #: "client-uuid:decimal", new for every claim
        self.ttl = ttl
        self.tokens = tokens  #: size of the block of fencing tokens to reserve; a repeat sends the same
        self.fair = fair  #: only the head of the engine's queue may acquire
        self.polite = polite  #: this once, do not overtake anybody who waits in the engine's queue
        self.replicas = replicas  #: how many must acknowledge the acquire and each renewal
        self.description = description  #: JSON object about the caller, for inspect (host, pid, thread, program, label)
        self.waiter: str | None = None  #: this claim's entry in the engine's queue; set by the engine's Contender
        self.unresolved = False  #: a transmission of this claim has an unknown fate: leave a tombstone
        self.token: int | None = None  #: as granted; for engines that must tell it to a node which comes late
        self.remains: tuple[str, ...] = ()  #: earlier owners that may still hold something somewhere: withdraw them too
        self.freed: frozenset[tuple[str, int]] = frozenset()  #: (owner, node) of several that need not be asked again

    def reissue(self, *, lingers: bool) -> None:
        """Go on under a new owner, for an engine that has withdrawn the present one before it tries again.

        The old one has left tombstones, and a late duplicate of its withdrawal must not hit what is granted later.
        ``lingers``: not everything of it could be withdrawn.
        """
        if lingers:
            self.remains += (self.owner,)
            self.unresolved = True
        client, _, number = self.owner.partition(":")
        self.owner = f"{client}:{(int(number) + 1) % 2**63}"  # numbers are random and sparse: the next is nobody's


class Granted(NamedTuple):
    """The claim holds the name. ``token`` is the *last* of the reserved block (the first is token - tokens + 1).

    ``ttl``: what the engine really gave, where that is not its to choose. ``slack``: how much earlier than the ttl,
    counted from before the request was sent, belief must end (at least the core's own margin).
    """

    token: int
    ttl: float | None = None
    slack: float = 0.0


def is_of_grant(token: int, last: int, tokens: int) -> bool:
    """Whether ``token`` is one of the block of ``tokens`` that ends with ``last``."""
    return last - tokens < token <= last


class Busy(NamedTuple):
    """Somebody else holds the name, for at most ``remaining`` more seconds as far as the engine knows (else None)."""

    remaining: float | None = None


class Found(enum.Enum):
    """What renew, release or withdraw found under the name."""

    OURS = "ours"  # and it is done
    GONE = "gone"  # nobody holds it
    STOLEN = "stolen"  # somebody else does
    ENDED = "ended"  # the session that carried it has ended


class RequestFailed(Exception):
    """A request got no usable answer. ``may_have_happened`` is False only if not one byte of it can have arrived.

    ``errors``: of each node that failed, where a majority of several was needed.
    """

    def __init__(self, message: str, *, may_have_happened: bool, errors: Mapping[str, Exception] | None = None) -> None:
        super().__init__(message)
        self.may_have_happened = may_have_happened
        self.errors = errors

    def __reduce__(self) -> tuple[object, ...]:
        # It travels as the cause, or as one of the errors, of one that can be pickled.
        return (_failed_again, (type(self), self.args, self.__dict__.copy()))


def _failed_again(kind: type[RequestFailed], args: tuple[object, ...], state: dict[str, object]) -> RequestFailed:
    failure = kind.__new__(kind, *args)
    failure.__dict__.update(state)
    return failure


#: What a withdrawal found, or why it could not be done.
Withdrawn = Found | RequestFailed | EngineError


ALL_NAMES: Literal["*"] = "*"
#: What a push made suspicious: some names, or every one of them (connection lost, FLUSHALL).
Suspects = Collection[str] | Literal["*"]


class Contender(Protocol):
    """A claim's place in the engine's queue, from the first busy answer to the grant or the giving up."""

    timeout: float  #: bounds each of its requests; the core lowers it when the caller's own time runs out

    async def wait(self, until: float) -> None:
        """Arm the wake-up, look again, then sleep. Return when another ``acquire`` is worthwhile, or at ``until``.

        ``until`` is on the runtime's clock. Spurious returns are allowed, late ones are not: never rely on the wake-up
        alone, sleep no longer than the holder's remaining lease or a bounded, jittered poll.
        Raises RequestFailed when the engine cannot be reached.
        """

    async def leave(self) -> bool:
        """Give up the place, after a time-out. Never raises RequestFailed.

        False if it is not known whether the place was removed: then the claim is withdrawn.
        """

    def abandon(self) -> None:
        """Drop local resources without I/O. After a grant ``Session.acquire`` has removed the place; after a
        cancellation ``Session.withdraw`` does."""


class Session(Protocol):
    """An engine, open on one runtime. Thread-safe on the blocking runtime. Opens connections on first use."""

    async def acquire(self, claim: Claim, timeout: float) -> Granted | Busy:
        """One attempt. If the claim holds the name already (an earlier reply was lost): extend, and the same token."""

    def contender(self, claim: Claim, timeout: float) -> Contender:
        """The waiting side of ``claim``; ``timeout`` bounds each of its requests."""

    async def renew(self, claims: Sequence[Claim], ttl: float, timeout: float) -> Sequence[Found | RequestFailed]:
        """Extend all ``claims`` to at least ``ttl`` from now: one answer for each, failures isolated."""

    async def release(self, claim: Claim, timeout: float) -> Found:
        """Give the name up if ``claim`` holds it, and wake the next waiter."""

    async def withdraw(self, claims: Sequence[Claim], timeout: float) -> Sequence[Withdrawn]:
        """Release all ``claims``, remove their queue entries, and refuse any late duplicate of them from now on.

        One answer for each, failures isolated. RequestFailed: to be tried again. EngineError: refused for good. All of
        it takes no longer than ``timeout``: the watchdog has leases to renew.
        """

    async def inspect(self, name: str, timeout: float) -> LockState:
        """The holders of ``name``, and its queue as far as the engine keeps one.

        A holder's ``token`` is the first of its block. ``queue`` has at most MOST_WAITERS entries, in order.
        """

    def names(self, prefix: str, timeout: float) -> AsyncIterator[str]:
        """Names held at present that start with ``prefix``."""

    async def break_(self, name: str, timeout: float, token: int | None = None) -> bool:
        """Take the name from its holder, raise the token, wake a waiter, and report it to the holder if possible.

        With ``token``: only if it is one of the holder's block (``is_of_grant``), compared and taken in one atomic
        step, so that no later holder is ever broken; else False, and nothing changes. A holder without a token, such as
        another library's, has none to compare: False. May be repeated with the same token.
        """

    async def ping(self, timeout: float) -> None:
        """Prove that the engine can be reached and will serve us."""

    async def doze(self, until: float, wakeup: Wakeup) -> Suspects:
        """Watchdog's sleep: until ``until``, or ``wakeup`` is set, or the engine hints that something held was lost.

        Returns what is suspect (empty: nothing). A hint is verified by a renewal, so it may be wrong. Never raises
        RequestFailed.
        """

    async def close(self) -> None:
        """Close all connections. Never raises RequestFailed."""


class WatchingSession(Session, Protocol):
    """A session of an engine with ``early_watch``."""

    async def watch(self, claims: Sequence[Claim], timeout: float) -> Sequence[Found | RequestFailed]:
        """Look whether all ``claims`` hold, without extending them, and have ``doze`` report changes from now on."""


class Engine(Protocol):
    """The settings of one engine: validated, without I/O; shared by the sessions of one client."""

    scheme: str
    guarantees: Guarantees
    #: Tokens may be reserved in blocks, so a hold can be handed on inside the process (RULES 5).
    reserves_tokens: bool
    #: Grants in the order of arrival, asked to or not: every waiter has a place of its own in the engine's queue, and
    #: none waits in the process.
    strict_order: bool
    #: ``replicas=n`` can be asked for.
    replicates: bool
    #: A loss is reported by push only after ``Session.watch`` or a renewal: so the watchdog calls it soon.
    early_watch: bool

    def validate_name(self, name: str) -> None:
        """Raise InvalidName for a name that this engine cannot speak."""

    def session(self, runtime: Runtime) -> Session:
        """A new session on ``runtime``. Does no I/O."""

    def after_fork_in_child(self) -> None:
        """Forget what was inherited (close descriptors, never write to them); sessions will be opened anew."""

    def __repr__(self) -> str:
        """Without any secret."""


class EngineFactory(Protocol):
    """How ``connect`` makes an engine. A built-in engine has one named ``connect``; other distributions provide theirs
    by an entry point of the group ``holdfast.engines``, whose name is the URL scheme.

    For another distribution's engine, ``target`` is the URL as written, without its query. ``options`` has the other
    query parameters, decoded texts, and the keywords of ``connect``, except those that are holdfast's own; of these it
    has ``ttl``, ``token_ttl`` (seconds or None) and ``replicas``. The factory does no I/O. It raises UsageError, with
    the remedy and without secrets, for an unknown option or a wrong value.
    """

    def __call__(self, target: Any, options: dict[str, Any]) -> Engine: ...
