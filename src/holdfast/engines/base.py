"""The engine port: what a lock engine does for the core. A new engine is a module or folder that fulfils it.

An :class:`Engine` is settings, without I/O. A client opens two views of it: a :class:`Session` for its callers, on
their runtime (blocking, asyncio or simulated), and a :class:`Keeper` for its watchdog, which runs on a thread of its
own.

A :class:`Claim` is what is wanted, and never changes. An :class:`Attempt` is what an engine remembers about one claim,
from its first request to its release or withdrawal. The core passes it back with each request.

Three rules bind every engine:

* **Idempotent per attempt.** Each method may be repeated with the same attempt, also when an earlier reply was lost:
  the effect is that of one call. A late duplicate of an acquire must not take effect after release or withdraw.
* **Never shorten, never re-create.** ``acquire`` and ``renew`` set expiry := max(current, now + ttl); ``renew`` of an
  attempt that does not hold answers so and changes nothing.
* **Errors are two.** :class:`RequestFailed` (try again; it states whether the request may have happened) and
  :class:`holdfast.EngineRefused` (do not). Driver errors are their ``__cause__``.
"""

from __future__ import annotations

import enum
from collections.abc import AsyncIterator, Awaitable, Collection, Container, Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple, Protocol, TypeVar

from holdfast._runtime.base import Runtime, Wakeup
from holdfast.engines.registers import Cell, RegisterKey, Registers
from holdfast.engines.state import MOST_WAITERS as MOST_WAITERS
from holdfast.engines.state import Guarantees as Guarantees
from holdfast.engines.state import Holder as Holder
from holdfast.engines.state import LockState as LockState
from holdfast.engines.state import Waiter as Waiter
from holdfast.errors import EngineError, EngineRefused


class Kind(enum.Enum):
    """What a name is at the engine. One name has one kind."""

    __hash__ = object.__hash__  # the default is written in Python: it is slow, and a signal may be handled in it

    LOCK = "lock"
    ELECTION = "election"
    RWLOCK = "rwlock"
    SEMAPHORE = "semaphore"
    BARRIER = "barrier"


class Mode(NamedTuple):
    """How a name is to be held. ``shared``: together with other readers. ``permits`` of a semaphore are taken together;
    ``size`` is how many it has when it is created (0: any number). Of a barrier it is the number of parties."""

    kind: Kind
    shared: bool = False
    permits: int = 1
    size: int = 0

    @property
    def label(self) -> str:
        """As ``Holder.mode`` shows it."""
        if self.kind is Kind.SEMAPHORE or self.kind is Kind.BARRIER:
            return "permits"
        if self.kind is Kind.RWLOCK:
            return "read" if self.shared else "write"
        return "exclusive"


#: The mode of a plain lock.
EXCLUSIVE: Final = Mode(Kind.LOCK)
#: The mode of a candidate, at an engine where elections are a kind of their own.
LEADER: Final = Mode(Kind.ELECTION)
#: The modes of a read-write lock.
WRITE: Final = Mode(Kind.RWLOCK)
READ: Final = Mode(Kind.RWLOCK, shared=True)


def permits(count: int, size: int) -> Mode:
    """``count`` permits of a semaphore that has ``size`` of them when it is created (0: any number)."""
    return Mode(Kind.SEMAPHORE, shared=True, permits=count, size=size)


def member(parties: int) -> Mode:
    """Membership of a barrier of so many ``parties``, at an engine where barriers are a kind of their own."""
    return Mode(Kind.BARRIER, shared=True, size=parties)


def wrong_kind(name: str, wanted: Kind, found: Kind) -> EngineRefused:
    """The error for a name that is in use as another kind of object."""
    return EngineRefused(
        f"{name!r} is in use as {_article(found)}, not as {_article(wanted)}: one name has one kind; use another name",
        name=name,
    )


def _article(kind: Kind) -> str:
    return f"{'an' if kind is Kind.ELECTION else 'a'} {kind.value}"


class Claim(NamedTuple):
    """What is wanted: to hold one name, by an owner that no other claim has. It never changes."""

    name: str  #: the engine's name: namespace included
    owner: str  #: "client-uuid:decimal", new for every claim; the engine stores it as the holder
    ttl: float
    tokens: int = 1  #: size of the block of fencing tokens to reserve
    fair: bool = False  #: only the head of the engine's queue may acquire
    non_barging: bool = False  #: do not overtake waiters in the engine's queue
    replicas: int = 0  #: how many must acknowledge the acquire and each renewal
    description: bytes = b"{}"  #: JSON object about the caller, for inspect (host, pid, thread, program, label)
    mode: Mode = EXCLUSIVE
    detached: bool = False  #: it belongs to a ticket, and to no process: it outlives the client until its ttl is over
    #: If the engine can read it in the same request as it grants: under the guard of the first token of the block. The
    #: request of a busy name reads and writes nothing of it. An engine may ignore it.
    register: RegisterKey | None = None


class Attempt:
    """What an engine remembers about one claim. Made by ``Session.attempt``, used by the Session and the Keeper.

    An engine that has something of its own to remember (an entry in its queue, the token that it granted, an owner that
    had to be replaced) subclasses it. The core reads what is here, and sets ``unresolved``.
    """

    __slots__ = ("claim", "unresolved", "waits")

    def __init__(self, claim: Claim) -> None:
        self.claim = claim
        #: Its caller is going to wait if the name is busy: an engine may have it join the queue at once.
        self.waits = False
        #: A transmission has an unknown outcome: look for it first, or leave a tombstone. An engine may set it, too.
        self.unresolved = False

    @property
    def owner(self) -> str:
        """The owner under which the engine knows it at present."""
        return self.claim.owner

    def abandon(self) -> None:
        """Drop local resources that an ``acquire`` may have left for a contender, without I/O."""

    @property
    def queued(self) -> bool:
        """Whether it has an entry in the engine's queue. If the attempt is given up, ``Contender.leave`` removes it.

        Read only before a grant. Where ``acquire`` itself makes the entry, it is True after the first busy answer.
        """
        return False

    @property
    def withdrawn_for(self) -> float:
        """For how long it is withdrawn again and again, after it was given up, while the engine cannot be reached (s).

        What was granted has ended by itself after the ttl. What a late request puts into a queue may be granted later.
        """
        return self.claim.ttl

    @property
    def has_leftovers(self) -> bool:
        """Whether something of it may remain at a server though it was released: then the core has it withdrawn."""
        return False


class SimpleAttempt(Attempt):
    """For an engine that finds a queue entry by its owner: it remembers only whether there is one."""

    __slots__ = ("queued",)
    queued: bool

    def __init__(self, claim: Claim) -> None:
        self.claim = claim
        self.unresolved = self.waits = False
        self.queued = False


#: An engine's own kind of attempt. The core knows it as an Attempt, and passes it back to the engine that made it.
A = TypeVar("A", bound=Attempt)
A_contra = TypeVar("A_contra", bound=Attempt, contravariant=True)


class Granted(NamedTuple):
    """The claim holds the name. ``token`` is the *last* of the reserved block (the first is token - tokens + 1).

    ``ttl``: what the engine really gave, if the lock lives as long as a session and not as long as the claim's ttl.
    ``slack``: how much earlier than the ttl, counted from before the request was sent, the hold must end in this
    process (at least the core's own margin). ``size``: of a semaphore, how many permits it has; 0: not known, or any
    number. ``loaded``: the content of the claim's ``register``; None: it is to be loaded by a request of its own.
    """

    token: int
    ttl: float | None = None
    slack: float = 0.0
    size: int = 0
    loaded: Cell | None = None


def is_of_grant(token: int, last: int, tokens: int) -> bool:
    """Whether ``token`` is one of the block of ``tokens`` that ends with ``last``."""
    return last - tokens < token <= last


class Busy(NamedTuple):
    """Another owner holds the name, for at most ``remaining`` more seconds as far as the engine knows (else None).

    ``impossible``: why the claim can never be granted as things are (more permits than the semaphore has): the caller
    gets it as a UsageError and does not wait. The attempt has no queue entry then.
    """

    remaining: float | None = None
    impossible: str | None = None


class Found(enum.Enum):
    """What renew, release or withdraw found under the name."""

    OURS = "ours"  # this owner held it, and the request took effect
    GONE = "gone"  # the name is free
    STOLEN = "stolen"  # another owner holds it
    MIXED = "mixed"  # this owner held it, and so did another program, as a kind that does not see this one: as STOLEN
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
        # An error that can be pickled has it as its cause, or as one of its errors.
        return (_failed_again, (type(self), self.args, self.__dict__.copy()))


def _failed_again(kind: type[RequestFailed], args: tuple[object, ...], state: dict[str, object]) -> RequestFailed:
    failure = kind.__new__(kind, *args)
    failure.__dict__.update(state)
    return failure


#: What a withdrawal found, or why it could not be done.
Withdrawn = Found | RequestFailed | EngineError


ALL_NAMES: Literal["*"] = "*"
#: What may have been lost: some names, or all of them (connection lost, FLUSHALL).
Suspects = Collection[str] | Literal["*"]


class Handed(NamedTuple):
    """A waiting claim was granted, without a request of its own. ``token``: as of :class:`Granted`.

    ``sent``: when its last request was sent of which the answer shows that it did not hold by then. From a moment after
    that on, it holds for ``lease`` seconds. If that is less than the claim's ttl, the lease is to be renewed soon.
    """

    token: int
    sent: float
    lease: float


class Contender(Protocol):
    """An attempt's place in the engine's queue, from the first busy answer to the grant or the giving up."""

    timeout: float  #: bounds each of its requests; the core lowers it when the caller's own time runs out

    async def wait(self, until: float) -> Handed | None:
        """Arm the wake-up, look again, then sleep. Return when another ``acquire`` is worthwhile, or at ``until``; or
        what the attempt was granted meanwhile. The core may ignore that, and ask.

        ``until`` is on the runtime's clock. Spurious returns are allowed, late ones are not: never rely on the wake-up
        alone, sleep no longer than the holder's remaining lease or a bounded, jittered poll.
        Raises RequestFailed when the engine cannot be reached.
        """

    async def leave(self) -> bool:
        """Give up the place, after a timeout. Never raises RequestFailed.

        False if it is not known whether the place was removed: then the attempt is withdrawn.
        """

    def abandon(self) -> None:
        """Drop local resources without I/O. After a grant ``Session.acquire`` has removed the place; after a
        cancellation ``Keeper.withdraw`` does."""


class Session(Protocol[A]):
    """An engine as a client's callers use it. Thread-safe on the blocking runtime. Opens connections on first use."""

    @property
    def registers(self) -> Registers | None:
        """None: the engine has no registers (``Guarantees.registers``)."""

    def attempt(self, claim: Claim) -> A:
        """A new attempt at ``claim``. No I/O."""

    async def acquire(self, attempt: A, timeout: float) -> Granted | Busy:
        """Ask once. If the attempt holds the name already (an earlier reply was lost): extend, and the same token.

        An engine with ``strict_order`` makes the attempt's queue entry here. While a caller waits and the engine
        answers, this is called about twice a second. An entry that expires is extended here or by ``Contender.wait``:
        the Keeper renews holds only.
        """

    def contender(self, attempt: A, timeout: float) -> Contender:
        """The waiting side of ``attempt``; ``timeout`` bounds each of its requests."""

    async def release(self, attempt: A, timeout: float) -> Found:
        """Give the name up if ``attempt`` holds it, and wake the next waiter."""

    async def renew(self, attempt: A, ttl: float, timeout: float) -> Found:
        """Extend one lease to at least ``ttl`` from now, on the user's own request."""

    async def inspect(self, name: str, timeout: float) -> LockState:
        """The holders of ``name``, and its queue as far as the engine keeps one.

        A holder's ``token`` is the first of its block. ``queue`` has at most MOST_WAITERS entries, in order.
        """

    def names(self, prefix: str, timeout: float) -> AsyncIterator[str]:
        """Names held at present that start with ``prefix``."""

    async def break_(self, name: str, timeout: float, token: int | None = None) -> bool:
        """Take the name from its holder, wake a waiter, and report it to the holder if possible.

        Every later grant has a token above the whole block of the broken one, so an engine with a counter raises it.

        With ``token``: only if it is one of the holder's block (``is_of_grant``), compared and taken in one atomic
        step, so that no later holder is ever broken; else False, and nothing changes. A holder without a token, such as
        another library's, has none to compare: False. May be repeated with the same token.

        Of a read-write lock or a semaphore, every holder is broken; with ``token``, every holder that has it.
        """

    async def ping(self, timeout: float) -> None:
        """Prove that the engine can be reached and will serve this client."""

    async def close(self) -> None:
        """Close all connections. Never raises RequestFailed."""


class DirectSession(Session[A], Protocol[A]):
    """The session of an engine that serves the usual claim with less around it: on a plain lock, for one token, at the
    first request. What it does at the engine is what ``acquire`` and ``release`` of a new attempt would do.

    On a runtime that suspends, the answer may be an awaitable: ``acquired`` and ``released`` read what it brings.
    """

    @property
    def contended(self) -> Container[str]:
        """Names for which a claim is likely to wait: it asks by ``acquire``."""

    def acquire_directly(
        self, name: str, owner: str, description: bytes, ttl: float, timeout: float
    ) -> int | Busy | Awaitable[Any] | None:
        """The token; Busy; None if it is to be asked by ``acquire``: either nothing was done, or the same again will
        do."""

    def acquired(self, reply: Any) -> int | Busy | None:
        """What an awaited reply to ``acquire_directly`` means."""

    def release_directly(self, name: str, owner: str, timeout: float) -> Found | Awaitable[Any] | None:
        """What was found; None if it is to be asked by ``release``."""

    def released(self, reply: Any) -> Found | None:
        """What an awaited reply to ``release_directly`` means."""


class Keeper(Protocol[A_contra]):
    """An engine as a client's watchdog uses it: it keeps leases alive, and withdraws what was given up.

    One thread uses it. Its attempts were made by a Session of the same engine.
    """

    async def renew(self, attempts: Sequence[A_contra], ttl: float, timeout: float) -> Sequence[Found | RequestFailed]:
        """Extend all to at least ``ttl`` from now: one answer for each, failures isolated."""

    async def withdraw(self, attempts: Sequence[A_contra], timeout: float) -> Sequence[Withdrawn]:
        """Release all, remove their queue entries, and refuse any late duplicate of them from now on.

        One answer for each, failures isolated. RequestFailed: to be tried again. EngineError: refused, not tried again.
        All of it takes no longer than ``timeout``: the watchdog has leases to renew.
        """

    async def wait_for_hints(self, until: float, wakeup: Wakeup) -> Suspects:
        """Sleep until ``until``, or ``wakeup`` is set, or the engine hints that something held was lost.

        Returns what is suspect (empty: nothing). A hint is verified by a renewal, so it may be wrong. Never raises
        RequestFailed. The watchdog clears ``wakeup`` afterwards. An engine may set it from another thread, to end the
        sleep.
        """

    async def close(self) -> None:
        """Close all connections. Never raises RequestFailed."""


class WatchingKeeper(Keeper[A_contra], Protocol[A_contra]):
    """The keeper of an engine with ``early_watch``."""

    async def watch(self, attempts: Sequence[A_contra], timeout: float) -> Sequence[Found | RequestFailed]:
        """Look whether all hold, without extending them, and have ``wait_for_hints`` report changes from now on."""


class Engine(Protocol):
    """The settings of one engine: validated, without I/O; shared by the sessions and keepers of one client."""

    scheme: str
    guarantees: Guarantees
    #: What a name can be. Without ELECTION, an election is a lock. With BARRIER, its sessions are BarrierSessions.
    kinds: frozenset[Kind]
    #: Tokens may be reserved in blocks, so a hold can be handed over inside the process.
    reserves_tokens: bool
    #: Grants in the order of arrival, also to claims that are not fair: every waiter has a place of its own in the
    #: engine's queue, and none waits in the process.
    strict_order: bool
    #: ``replicas=n`` can be asked for.
    replicates: bool
    #: A loss is reported by push only after ``WatchingKeeper.watch`` or a renewal: so the watchdog calls it soon.
    early_watch: bool

    def validate_name(self, name: str) -> None:
        """Raise InvalidName for a name that this engine cannot represent."""

    def session(self, runtime: Runtime) -> Session[Any]:
        """A new session on ``runtime``. Does no I/O."""

    def keeper(self, runtime: Runtime) -> Keeper[Any]:
        """A new keeper on ``runtime``, which is blocking or simulated. Does no I/O."""

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
