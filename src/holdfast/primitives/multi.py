"""Several locks as one: all of them or none.

The locks may be of any clients and engines. They are acquired one after another in one order, by the engine's address
and the name at the engine, wherever they are used together: two callers that want overlapping sets wait for each other
in one direction only. The address is what ``repr`` of the engine shows. It has no secret, and is the same in all
processes that are given the same URL; a server that is addressed in two ways (``localhost``, ``127.0.0.1``) counts as
two.

Here are the order, the steps that do I/O (written once), and the sync API. ``aio/multi.py`` has the async API.
"""

from __future__ import annotations

import dataclasses
import weakref
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any, Final, Generic, Never, NoReturn, Protocol, Self, TypeVar

from holdfast._config import foreign_keywords
from holdfast._config.durations import Duration, check_timeout
from holdfast._core import releasing, renewing
from holdfast._core.core import Core
from holdfast._core.direct_acquire import acquire
from holdfast._core.hold import Hold
from holdfast._core.policy import Policy
from holdfast._runtime.base import Event
from holdfast._runtime.blocking import run
from holdfast.base_client import _DEFAULT, BaseClient
from holdfast.client import Lock, LockBlock
from holdfast.errors import AcquireTimeout, LockError, LockLost, LossReason, UsageError
from holdfast.lease import AnyLease, BaseLease, Lease, LeaseBlock, Loss

#: How long an acquire that has failed waits for the releases of what it had. Then they go on in the background.
_GIVE_BACK_WITHIN: Final = 0.05
#: A caller that waits for a loss looks at the clock at least this often.
_LONGEST_WAIT: Final = 1.0


class AnyLock(Protocol):
    """Lock or AsyncLock."""

    @property
    def _client(self) -> BaseClient: ...

    @property
    def _policy(self) -> Policy: ...

    @property
    def _timeout(self) -> float | None: ...


K = TypeVar("K", bound=AnyLock)
T = TypeVar("T", bound=BaseLease)


# -- the order of the locks ----------------------------------------------------------------------------------------


def _place(lock: AnyLock) -> tuple[str, str]:
    """Where the lock is: the engine's address, and the name there. Locks are acquired in this order."""
    return repr(lock._client._engine), lock._policy.key


def in_order(locks: Iterable[K], kind: type[K]) -> tuple[K, ...]:
    """The locks in the order of acquisition, each once. UsageError if they cannot be acquired together."""
    found: dict[tuple[str, str], K] = {}
    for lock in _as_list(locks, kind):
        first = found.setdefault(_place(lock), lock)
        if first is not lock:
            _check_same(first, lock)
    return tuple(found[place] for place in sorted(found))


def _as_list(locks: Iterable[K], kind: type[K]) -> list[K]:
    if isinstance(locks, kind):
        raise UsageError(f"multi() takes a list of locks: multi([{locks._policy.name!r}, …])")
    given = list(locks)
    if not given:
        raise UsageError("multi() needs at least one lock")
    for lock in given:
        if not isinstance(lock, kind):
            raise UsageError(
                f"multi() of this client takes objects of {kind.__name__}, not of {type(lock).__name__}: sync and "
                "async locks do not mix, and semaphores and multi-locks cannot be part of a multi-lock"
            )
    return given


def _check_same(first: AnyLock, second: AnyLock) -> None:
    """A lock that is given twice is acquired once, unless that would not be what both say."""
    policy, other = first._policy, second._policy
    name = policy.name
    if policy.mode is not other.mode:
        raise UsageError(
            f"{policy.title} and {other.title} are one object and cannot be acquired together: "
            "a write lock is enough to read",
            name=name,
        )
    if first._client is not second._client:
        raise UsageError(
            f"{policy.title} is given twice, by two clients: the second would wait for the first; use one client",
            name=name,
        )
    if dataclasses.replace(policy, timeout=None) != dataclasses.replace(other, timeout=None):
        raise UsageError(f"{policy.title} is given twice with different options: give it once", name=name)


def labels(locks: Sequence[AnyLock]) -> tuple[str, ...]:
    """What ``tokens`` calls each lock: its name; if several have that name, its place."""
    times = Counter(lock._policy.name for lock in locks)
    return tuple(
        lock._policy.name if times[lock._policy.name] == 1 else "{1} at {0}".format(*_place(lock)) for lock in locks
    )


def timeout_of_all(locks: Sequence[AnyLock], timeout: Duration | None) -> float | None:
    """How long ``with`` waits: ``timeout``; by default the shortest timeout of the locks."""
    if timeout is not _DEFAULT:
        return check_timeout(timeout)
    return min((lock._timeout for lock in locks if lock._timeout is not None), default=None)


# -- steps that do I/O ---------------------------------------------------------------------------------------------


async def acquire_all(parts: Sequence[tuple[Core, Policy]], leases: Sequence[BaseLease], timeout: float | None) -> None:
    """Acquire all ``parts`` in this order, each for the lease in the same place; or raise, and hold none of them.

    Cancelled or interrupted, what was acquired is released in the background.
    """
    now = parts[0][0].front.now
    deadline = None if timeout is None else now() + timeout
    try:
        try:
            for (core, policy), lease in zip(parts, leases, strict=True):
                if not core.reenter(policy, lease):
                    left = None if deadline is None else max(0.0, deadline - now())
                    await acquire(core, policy, left, lease)
            for lease in leases:
                lease.check()  # an early one may be lost by now, while the later ones were waited for
        except LockError as error:
            await _give_back(leases, now() + _GIVE_BACK_WITHIN)
            if isinstance(error, AcquireTimeout) and len(parts) > 1:
                raise _busy(parts, error, timeout) from error
            raise
    except BaseException:
        drop(leases)
        raise


def _busy(parts: Sequence[tuple[Core, Policy]], error: AcquireTimeout, timeout: float | None) -> AcquireTimeout:
    names = ", ".join(repr(policy.name) for _, policy in parts)
    waited = f"stayed busy until the timeout of {timeout:g} s" if timeout else "is busy"
    message = f"locks {names} were not acquired: {error.name!r} {waited}"
    return AcquireTimeout(message, name=error.name, timeout=timeout or 0.0)


async def _give_back(leases: Sequence[BaseLease], until: float) -> None:
    """Release what was acquired, the last one first. Not waited for beyond ``until``: the caller has a timeout."""
    for lease in reversed(leases):
        if (hold := _open_hold(lease)) is not None:
            try:
                await releasing.release(hold.core, hold, lease, releasing.bounded(until))
            except LockError:
                pass  # it is lost, or is released in the background; the caller gets the error of the acquire


async def release_all(leases: Sequence[BaseLease]) -> None:
    """Release all, the last one first. All are released, whatever is raised about one of them."""
    failures: list[LockError] = []
    try:
        for lease in reversed(leases):
            if (hold := _open_hold(lease)) is not None:
                try:
                    await releasing.release(hold.core, hold, lease)
                except LockError as error:
                    failures.append(error)
    except BaseException:
        drop(leases)
        raise
    if failures:
        raise next((failure for failure in failures if isinstance(failure, LockLost)), failures[0])


async def renew_all(leases: Sequence[BaseLease], ttl: Duration | None) -> None:
    """Renew all, in order. Raises at the first that cannot be renewed."""
    for hold, seconds in [lease._for_renewal(ttl) for lease in leases]:  # all are checked before the first request
        await renewing.renew(hold.core, hold, seconds)


def drop(leases: Sequence[BaseLease]) -> None:
    """Give up what is not released yet, the last one first. No I/O: the engines are asked in the background."""
    for lease in reversed(leases):
        if (hold := _open_hold(lease)) is not None:
            releasing.give_up_handle(hold.core, hold, lease._key)


def _open_hold(lease: BaseLease) -> Hold | None:
    """The hold of a lease that has one and was not released."""
    hold: Hold | None = getattr(lease, "_hold", None)
    return hold if hold is not None and lease._key in hold.handles else None


# -- leases --------------------------------------------------------------------------------------------------------


class BaseMultiLease(AnyLease, Generic[T]):
    """What sync and async leases on several locks share: everything that does no I/O.

    It has one lease for each lock. Garbage, these are garbage too, and each reports its own line and is released.
    """

    __slots__ = ("__weakref__", "_changed", "_leases")
    _remedy = "pass the URLs and acquire there"

    def __init__(self, leases: Mapping[str, T]) -> None:
        self._leases: Final = MappingProxyType(dict(leases))
        self._changed: Event | None = None

    @property
    def name(self) -> str:
        """The names of its locks, separated by commas."""
        return ", ".join(self._leases)

    @property
    def leases(self) -> Mapping[str, T]:
        """The lease on each lock, by its name, in the order of acquisition: for fences. Do not release them one by one.

        If several locks have one name (of different engines or namespaces), the key of each is its name at the engine,
        ``at``, and the engine: ``"ns:a at <redis engine redis://h:6379/0>"``.
        """
        return self._leases

    @property
    def tokens(self) -> dict[str, int]:
        """The fencing token of each lock, by its name. The keys are those of ``leases``."""
        return {name: lease.token for name, lease in self._leases.items()}

    @property
    def token(self) -> NoReturn:
        """Raises UsageError: each lock has a token of its own, see ``tokens``."""
        raise UsageError("a lease on several locks has a token for each: lease.tokens[name]", name=self.name)

    @property
    def owner(self) -> NoReturn:
        """Raises UsageError: each lock has an owner of its own, ``leases[name].owner``."""
        raise UsageError("a lease on several locks has an owner for each: lease.leases[name].owner", name=self.name)

    @property
    def ttl(self) -> float:
        """Seconds that each renewal makes the lease valid for: the shortest of its locks."""
        return min(lease.ttl for lease in self._leases.values())

    @property
    def held(self) -> bool:
        """Whether all locks are held at this moment. No I/O."""
        return all(lease.held for lease in self._leases.values())

    @property
    def remaining(self) -> float:
        """Seconds until the earliest deadline of the locks, without another renewal; 0.0 if not held."""
        return min(lease.remaining for lease in self._leases.values())

    @property
    def lost_reason(self) -> LossReason | None:
        """Why the first lock that was lost was lost, or None. One that is lost makes the whole lease lost."""
        reasons = (lease.lost_reason for lease in self._leases.values())
        return next((reason for reason in reasons if reason is not None), None)

    @property
    def released(self) -> bool:
        """Whether this lease was released."""
        return all(lease.released for lease in self._leases.values())

    def check(self) -> None:
        """Raise LockLost if one lock is lost, NotHeld if released. No I/O: cheap enough for every step of a loop."""
        for lease in self._leases.values():
            lease.check()

    def on_lost(self, callback: Callable[[Self], Any]) -> None:
        """Call ``callback(lease)`` exactly once when the first lock is lost; immediately if one is lost already.

        It runs where callbacks of a lease on one lock run. It is not called if the lease is released before, or garbage
        collected.
        """
        # Weak: the holds of the locks keep what they call, and this lease must be able to become garbage before them.
        itself, left = weakref.ref(self), [callback]
        for lease in self._leases.values():
            lease.on_lost(partial(_call_once, itself, left))

    def _ready(self, on_lost: Callable[[Any], Any] | None) -> Self:
        """Called once, after the acquire."""
        if on_lost is not None:
            self.on_lost(on_lost)
        return self

    @property
    def _all(self) -> Sequence[T]:
        return tuple(self._leases.values())

    @property
    def _holds(self) -> Sequence[Hold]:
        return tuple(lease._hold for lease in self._leases.values())

    async def _until_changed(self, until: float) -> None:
        front = self._holds[0].core.front
        if self._changed is None:
            self._changed = changed = front.event()
            for lease in self._leases.values():
                lease.on_lost(lambda _: changed.set())
        now = front.now()
        await self._changed.wait(min(until, now + self.remaining, now + _LONGEST_WAIT))

    def _notify(self) -> None:
        """It was released: wake callers that wait for a loss."""
        if self._changed is not None:
            self._changed.set()

    def _loss(self) -> LockLost:
        lost = (lease for lease in self._leases.values() if lease._hold.lost is not None)
        return next(lost, self._all[0])._loss()

    def _keep_for(self, seconds: float) -> None:
        """Keep all locks until ``seconds`` after their grants."""
        for lease in self._leases.values():
            lease._keep_for(seconds)

    def _annotate(self, error: BaseException) -> None:
        for lease in self._leases.values():
            lease._annotate(error)

    def __repr__(self) -> str:
        state = "released" if self.released else "held" if self.held else f"lost: {self.lost_reason}"
        return f"<{type(self).__name__} {self.name!r} {state}>"


def _call_once(lease: Callable[[], Any], left: list[Callable[[Any], Any]], _: BaseLease) -> Any:
    """What is left is taken in one atomic step: the losses of two locks may be reported on two threads."""
    itself = lease()
    try:
        callback = left.pop()
    except IndexError:
        return None
    return None if itself is None else callback(itself)


class MultiLease(LeaseBlock, BaseMultiLease[Lease]):
    """Several held locks. A context manager; leaving it releases all.

    It is held as long as all locks are, and lost with the first that is lost; the others are renewed until it is
    released. Not guaranteed: that a loss stops your code.
    """

    __slots__ = ()

    @property
    def lost(self) -> Loss:
        """The loss as an event: ``is_set()``, ``wait(timeout)``, ``bool()``."""
        return Loss(self)

    def renew(self, ttl: Duration | None = None) -> None:
        """Make all locks valid for at least ``ttl`` seconds from now; later renewals use this ttl. Never shortens."""
        run(renew_all(self._all, ttl))

    def release(self) -> None:
        """Release all locks, the last acquired first. Idempotent; callable from any thread.

        All are released, also if one was lost. Raises LockLost if one was, OutcomeUnknown if an engine could not be
        reached before its lease expired.
        """
        try:
            run(release_all(self._all))
        finally:
            self._notify()


# -- locks ---------------------------------------------------------------------------------------------------------


class BaseMultiLock(Generic[K]):
    """What sync and async multi-locks share."""

    _remedy = "pass the URLs and connect() there"

    def __init__(self, locks: Iterable[K], kind: type[K]) -> None:
        self._locks = in_order(locks, kind)
        self._labels = labels(self._locks)

    @property
    def name(self) -> str:
        """The names of its locks, separated by commas."""
        return ", ".join(self._labels)

    @property
    def locks(self) -> tuple[K, ...]:
        """The locks in the order in which they are acquired, each once."""
        return self._locks

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r}>"


class MultiLock(BaseMultiLock[Lock], LockBlock[MultiLease]):
    """Several locks that are acquired together. Creating one does no I/O; threads may share it."""

    def __init__(
        self, locks: Iterable[Lock], timeout: Duration | None, on_lost: Callable[[MultiLease], Any] | None
    ) -> None:
        BaseMultiLock.__init__(self, locks, Lock)
        LockBlock.__init__(self, timeout_of_all(self._locks, timeout))
        self._on_lost = on_lost

    def acquire(self, *, timeout: Duration | None = None, **foreign: Never) -> MultiLease:
        """Wait for all locks, for at most ``timeout`` seconds in total, and return a lease on all of them.

        If one cannot be acquired, those that were are released, and the error is raised: as for one lock, and LockLost
        if one was lost while later ones were waited for. A lock that the caller holds already is re-entered.
        """
        if foreign:
            foreign_keywords.refuse_keywords("acquire", foreign, ("timeout",))
        seconds = check_timeout(timeout)
        leases = [Lease() for _ in self._locks]
        parts = [(lock._client._open(), lock._policy) for lock in self._locks]
        run(acquire_all(parts, leases, seconds))
        for lease, (_, policy) in zip(leases, parts, strict=True):
            lease._ready(policy.on_lost)
        return MultiLease(dict(zip(self._labels, leases, strict=True)))._ready(self._on_lost)
