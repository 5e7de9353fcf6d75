"""The sync API: Client and Lock. No logic here; it is in the core."""

from __future__ import annotations

import dataclasses
import logging
import sys
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Generic, Literal, Never, Self, TypeVar, overload

from holdfast import current
from holdfast._config import foreign_keywords, names
from holdfast._config.durations import Duration, check_timeout
from holdfast._config.settings import resolve_target
from holdfast._config.targets import Target
from holdfast._core import breaking, operators, semaphores
from holdfast._core.blocks import Blocks, exit_of_block
from holdfast._core.core import Core
from holdfast._core.direct_acquire import acquire
from holdfast._core.policy import Policy
from holdfast._runtime.blocking import BLOCKING, run, run_rest
from holdfast.base_client import _DEFAULT, LOCK_KEYWORDS, SHARED_KEYWORDS, BaseClient
from holdfast.engines.base import READ, WRITE, LockState
from holdfast.engines.base import permits as permits_of
from holdfast.errors import AcquireTimeout
from holdfast.lease import Lease, LeaseBlock, NotPortable

if TYPE_CHECKING:
    from typing import Unpack

    from holdfast.connect_options import ConnectOptions, DriverClient
    from holdfast.decorator.options import LockedOptions, WaitOrRaise
    from holdfast.decorator.shapes import D, Key, Keys, LockedFunction, P, R, SyncDecorator, SyncSkippingDecorator
    from holdfast.primitives.barrier import Barrier
    from holdfast.primitives.condition import Condition
    from holdfast.primitives.election import Election
    from holdfast.primitives.latch import Latch
    from holdfast.primitives.multi import MultiLease, MultiLock
    from holdfast.primitives.rwlock import RWLock
    from holdfast.primitives.semaphore import Semaphore

_log: Final = logging.getLogger("holdfast.settings")

L = TypeVar("L", bound=LeaseBlock)


class LockBlock(NotPortable, Generic[L]):
    """``with lock as lease:``, for one lock and for several. Each block has a lease of its own."""

    def __init__(self, timeout: float | None) -> None:
        self._timeout = timeout  #: of ``with``
        self._blocks: Blocks[L] = Blocks()

    def acquire(self, *, timeout: Duration | None = None, **foreign: Never) -> L:
        """Wait for the lock, for at most ``timeout`` seconds, and return a new lease."""
        raise NotImplementedError

    def try_acquire(self, *, timeout: Duration | None = 0, **foreign: Never) -> L | None:
        """As ``acquire``, but None instead of AcquireTimeout; one try by default."""
        if foreign:
            foreign_keywords.refuse_keywords("try_acquire", foreign, ("timeout",))
        try:
            return self.acquire(timeout=timeout)
        except AcquireTimeout:
            return None

    def __enter__(self) -> L:
        block = self._blocks.entered(self, sys._getframe(1))
        lease = self.acquire(timeout=self._timeout)
        lease.check()  # it may have been lost on its way here, by break_
        current.enter(lease)
        if block is None:
            self._blocks.keep(BLOCKING.caller(), lease)
        else:
            block.lease = lease
        return lease

    if TYPE_CHECKING:

        def __exit__(
            self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
        ) -> None: ...

    else:

        @exit_of_block
        def __exit__(self, kind, error, traceback, *, lease=None):
            lease = lease or self._blocks.leave(BLOCKING.caller())
            if lease is not None:
                lease.__exit__(kind, error, traceback)

    if not TYPE_CHECKING:  # a type checker should see that there is no such attribute

        def __getattr__(self, attribute):
            raise foreign_keywords.missing_attribute(self, attribute)


class Lock(LockBlock[Lease]):
    """A name and a policy. Creating one does no I/O; threads may share it. ``acquire`` returns leases."""

    def __init__(self, client: Client, policy: Policy) -> None:
        super().__init__(policy.timeout)
        self._client = client
        self._policy = policy

    @property
    def name(self) -> str:
        """The lock's name, without the namespace."""
        return self._policy.name

    def acquire(self, *, timeout: Duration | None = None, **foreign: Never) -> Lease:
        """Wait for the lock, for at most ``timeout`` seconds (None: for ever, 0: one try), and return a new lease.

        Raises AcquireTimeout if it stayed busy, EngineUnavailable if the engine cannot be reached, EngineRefused, or
        OutcomeUnknown. The lock is renewed until the last lease on it is released or garbage collected.
        """
        if foreign:
            foreign_keywords.refuse_keywords("acquire", foreign, ("timeout",))
        core, policy, lease = self._client._opened, self._policy, Lease()
        if core is None or core.closed:
            core = self._client._open()
        if timeout is not None:
            timeout = check_timeout(timeout)
        if not core.reenter(policy, lease):
            run_rest(acquire(core, policy, timeout, lease))
        return lease if policy.on_lost is None else lease._ready(policy.on_lost)

    def inspect(self) -> LockState:
        """The lock's holders and its queue, as the engine saw them just now: ``client.inspect`` of its name."""
        return run(operators.inspect(self._client._open(), self.name))

    def locked(self) -> bool:
        """Whether the lock is held by any owner, as the engine saw it just now: one request.

        Not safe to decide by: the lock may change hands before the answer arrives. Use ``try_acquire`` for that.
        """
        return bool(self.inspect().holders)

    def __repr__(self) -> str:
        return f"<Lock {self._policy.shown} of {self._client!r}>"


class Client(BaseClient):
    """A connection to a lock engine. Thread-safe; a context manager; usable after a fork."""

    def lock(
        self,
        name: str,
        *,
        ttl: Duration = _DEFAULT,
        renew: bool = _DEFAULT,
        timeout: Duration | None = None,
        fair: bool = False,
        reentrant: bool = True,
        max_hold: Duration | None = None,
        replicas: int = _DEFAULT,
        on_lost: Callable[[Lease], Any] | None = None,
        require: Collection[str] = (),
        **foreign: Never,
    ) -> Lock:
        """The lock with this name. No I/O.

        ``ttl``: how long the lease lives without renewal. ``timeout``: how long ``with`` waits. ``fair``: strictly
        first come, first served. ``max_hold``: stop renewing after this long. ``replicas``: how many replicas must
        acknowledge the acquire and each renewal. ``require``: guarantees that the engine must give.
        """
        if foreign:
            foreign_keywords.refuse_keywords("lock", foreign, LOCK_KEYWORDS)
        policy = self._policy(
            name,
            ttl=ttl,
            renew=renew,
            timeout=timeout,
            fair=fair,
            reentrant=reentrant,
            max_hold=max_hold,
            replicas=replicas,
            on_lost=on_lost,
            require=require,
        )
        return Lock(self, policy)

    def rwlock(
        self,
        name: str,
        *,
        ttl: Duration = _DEFAULT,
        renew: bool = _DEFAULT,
        timeout: Duration | None = None,
        max_hold: Duration | None = None,
        replicas: int = _DEFAULT,
        on_lost: Callable[[Lease], Any] | None = None,
        require: Collection[str] = (),
        **foreign: Never,
    ) -> RWLock:
        """The read-write lock with this name: many readers or one writer. No I/O. Options as for ``lock``.

        Readers and writers queue in one order, so neither are starved.
        """
        from holdfast.primitives.rwlock import RWLock

        if foreign:
            foreign_keywords.refuse_keywords("rwlock", foreign, SHARED_KEYWORDS)
        read = self._policy(
            name,
            ttl=ttl,
            renew=renew,
            timeout=timeout,
            max_hold=max_hold,
            replicas=replicas,
            on_lost=on_lost,
            require=require,
            mode=READ,
        )
        return RWLock(Lock(self, read), Lock(self, dataclasses.replace(read, mode=WRITE)))

    def semaphore(
        self,
        name: str,
        permits: int,
        *,
        ttl: Duration = _DEFAULT,
        renew: bool = _DEFAULT,
        timeout: Duration | None = None,
        max_hold: Duration | None = None,
        replicas: int = _DEFAULT,
        on_lost: Callable[[Lease], Any] | None = None,
        require: Collection[str] = (),
        **foreign: Never,
    ) -> Semaphore:
        """The semaphore with this name, which has ``permits`` when it is created. No I/O. Options as for ``lock``.

        The first acquire of any client creates it. Later the engine's number counts, which ``resize`` changes; a
        difference is logged once.
        """
        from holdfast.primitives.semaphore import Semaphore

        if foreign:
            foreign_keywords.refuse_keywords("semaphore", foreign, SHARED_KEYWORDS)
        policy = self._policy(
            name,
            ttl=ttl,
            renew=renew,
            timeout=timeout,
            reentrant=False,
            max_hold=max_hold,
            replicas=replicas,
            on_lost=on_lost,
            require=require,
            mode=permits_of(1, semaphores.check_permits(permits, name)),
        )
        return Semaphore(self, policy)

    def multi(
        self,
        locks: Iterable[Lock],
        *,
        timeout: Duration | None = _DEFAULT,
        on_lost: Callable[[MultiLease], Any] | None = None,
    ) -> MultiLock:
        """Several locks that are acquired together: all of them or none. No I/O.

        ``locks``: sync locks of any clients and engines. They are acquired in one order, wherever they are used
        together, so callers that take overlapping sets do not deadlock. ``timeout``: how long ``with`` waits for all of
        them; by default the shortest timeout of the locks. ``on_lost`` is called once, when the first of them is lost.
        """
        from holdfast.primitives.multi import MultiLock  # imported here: few programs need it

        return MultiLock(locks, timeout, on_lost)

    def condition(self, lock: Lock, name: str = "") -> Condition:
        """A condition variable of ``lock``; ``name`` tells the conditions of one lock apart. No I/O.

        The lock must be an exclusive lock, or a write lock, of this client; its engine must have registers
        (``guarantees.registers``).
        """
        from holdfast.primitives.condition import Condition  # imported here: few programs need it

        return Condition(self, lock, name)

    def latch(self, name: str, count: int | None) -> Latch:
        """A latch: callers wait until it was counted down to zero. No I/O.

        ``count``: how often; it counts when the latch is first used, by any client. None: only use one that exists.
        Raises UsageError on an engine without registers.
        """
        from holdfast.primitives.latch import Latch  # imported here: few programs need it

        return Latch(self, name, count)

    def barrier(self, name: str, parties: int) -> Barrier:
        """A member of a double barrier: ``parties`` members enter together, and leave together. No I/O.

        Each member makes an object of its own. Raises UsageError on an engine without registers or semaphores.
        """
        from holdfast.primitives.barrier import Barrier  # imported here: few programs need it

        return Barrier(self, name, parties)

    def election(
        self,
        name: str,
        *,
        value: str | None = None,
        ttl: Duration = _DEFAULT,
        on_lost: Callable[[Lease], Any] | None = None,
    ) -> Election:
        """An election: one of several candidates leads, in the order in which they came. No I/O.

        ``value``: what observers learn of this candidate, at most 256 characters. ``ttl`` and ``on_lost`` as for
        ``lock``. Raises UsageError on an engine without fair queues.
        """
        from holdfast.primitives.election import Election  # imported here: few programs need it

        return Election(self, name, value, ttl, on_lost)

    @overload
    def locked(self, function: Callable[P, R], /) -> LockedFunction[P, R, Lock]: ...  # type: ignore[overload-overlap]
    @overload
    def locked(
        self,
        template: Key = None,
        /,
        *,
        on_busy: Literal["skip"],
        default: None = None,
        **options: Unpack[LockedOptions],
    ) -> SyncSkippingDecorator[None, Lock]: ...
    @overload
    def locked(
        self, template: Key = None, /, *, on_busy: Literal["skip"], default: D, **options: Unpack[LockedOptions]
    ) -> SyncSkippingDecorator[D, Lock]: ...
    @overload
    def locked(
        self, template: Key = None, /, *, on_busy: WaitOrRaise = "wait", **options: Unpack[LockedOptions]
    ) -> SyncDecorator[Lock]: ...
    @overload
    def locked(
        self,
        templates: Keys,
        /,
        *,
        on_busy: Literal["skip"],
        default: None = None,
        **options: Unpack[LockedOptions],
    ) -> SyncSkippingDecorator[None, MultiLock]: ...
    @overload
    def locked(
        self, templates: Keys, /, *, on_busy: Literal["skip"], default: D, **options: Unpack[LockedOptions]
    ) -> SyncSkippingDecorator[D, MultiLock]: ...
    @overload
    def locked(
        self, templates: Keys, /, *, on_busy: WaitOrRaise = "wait", **options: Unpack[LockedOptions]
    ) -> SyncDecorator[MultiLock]: ...
    def locked(
        self, template: Any = None, /, *, key: Any = None, on_busy: Any = "wait", default: Any = None, **options: Any
    ) -> Any:
        """Decorate a function so that each call holds a lock named by its arguments: ``@client.locked("{order.id}")``.

        ``key``: a template over the arguments (``{parameter.name[key]}``), a callable of the same arguments, or None
        for module.qualname; a list of these: each call holds all these locks, as ``multi`` does. The lock's name is
        ``prefix:key``. ``on_busy``: "wait" for ``timeout`` and raise AcquireTimeout, "raise" it after one try, or
        "skip" the call, which returns ``default``, is logged and counted.
        ``at_least``: keep the lock for this long from its grant, without making the caller wait. Other options as for
        ``lock``. Decorates functions, methods and generators.

        A wrong template or option raises UsageError now; arguments that make no name raise InvalidName at the call.
        """
        from holdfast.decorator import decorate  # imported here: few programs need it

        return decorate.locked(decorate.of_sync_client(self), self, template, key, on_busy, default, options)

    def attach(self, ticket: str, *, on_lost: Callable[[Lease], Any] | None = None) -> Lease:
        """Take over the lock of a ticket that ``lease.detach()`` returned, with a new owner and a new token.

        The client must be of the same engine and namespace. Exactly one attach of a ticket succeeds. Raises NotHeld if
        it was used before or its time is over, OutcomeUnknown if no answer came (then the ticket may be used up, and
        the lock is released), UsageError for what is no ticket of this engine and namespace.
        """
        from holdfast.primitives import detaching  # imported here: few programs need it

        core, lease = self._open(), Lease()
        run(detaching.attach(core, detaching.policy_of(self, ticket), ticket, lease))
        return lease._ready(on_lost)

    def inspect(self, name: str) -> LockState:
        """The holders of ``name`` and its queue, as the engine saw them just now. If it is free, ``holders == ()``.

        ``queue`` lists the waiters in order, as far as the engine knows them: see LockState.
        """
        return run(operators.inspect(self._open(), names.validate(name)))

    def locks(self, prefix: str = "") -> Iterator[LockState]:
        """The locks held at present whose names start with ``prefix``. A lazy iterator."""
        found = operators.locks(self._open(), prefix)
        while (state := run(anext(found, None))) is not None:
            yield state

    def break_(self, name: str, *, token: int | None = None) -> bool:
        """Take ``name`` from its holder by force. True if it was held.

        The loss is reported to the holder as ``'broken'``: immediately if this client holds the lock, else by a push
        message or at its next renewal. Its token is fenced off, waiters are woken, and the break is logged. With
        ``token`` the lock is broken only if that is still the holder's fencing token, as ``inspect`` shows it; the
        engine compares and breaks in one step, so a later holder is never affected. If it is not, nothing changes and
        the result is False. A holder without a token (``Holder.token`` is None: another library's) can only be broken
        without ``token``.

        The holder's code is not stopped: break only holders that are known to be dead, or fenced. Raises OutcomeUnknown
        if no answer came, since a repeated request could break the next holder's lock. With ``token`` the request is
        repeated, which is safe; if that holder no longer holds the lock by then, the result is True, although the
        holder may have released it itself at that moment. Callers of one process may hand a lock over without a request
        within 10 ms of its grant: for other clients all of them are one holder.
        """
        return run(breaking.break_(self._open(), names.validate(name), token))

    def ping(self) -> None:
        """Readiness probe: raises EngineUnavailable or EngineRefused if the engine cannot serve."""
        run(operators.ping(self._open()))

    def close(self) -> None:
        """Release all locks that are held, within a second. Later use raises UsageError. Idempotent."""
        with self._opening:
            self._closed = True
            core = self._opened
        if core is not None and not core.disowned:
            run(core.close())

    def _open(self) -> Core:
        core = self._opened
        if core is None or core.closed:
            return self._open_on(lambda: BLOCKING)
        return core

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


def find_target(url_or_client: Any, keywords: Mapping[str, Any]) -> Target:
    """What to connect to: the argument, or else the configured default."""
    if "gevent.monkey" in sys.modules:
        warnings.warn(
            "holdfast does not support gevent: leases may be lost while greenlets block", RuntimeWarning, stacklevel=3
        )
    target, default = resolve_target(url_or_client, keywords)
    if default is not None and default.source == "embedded":
        _log.info("embedded engine: this host only")
    return target


def connect(url_or_client: str | DriverClient | None = None, **options: Unpack[ConnectOptions]) -> Client:
    """A client for a URL, an existing redis client, or the configured default (embedded SQLite). Does no I/O.

    ``profile``: instead of a URL, a profile of the settings file named by ``HOLDFAST_CONFIG``.

    Options: ``ttl=30.0, namespace="", renew=True, request_timeout=1.0, unavailable_after=3.0, replicas=0,
    token_ttl=…, label=None`` and those of the engine's driver. Unknown ones raise UsageError naming the nearest.
    ``observer``: a function that is called with each event, on a thread of its own; see :mod:`holdfast.observer`.
    """
    return Client(find_target(url_or_client, options))
