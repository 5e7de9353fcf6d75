"""What the sync and the async client share: opening, policies, and what the engine must give."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any, Final

from holdfast._config import names
from holdfast._config.durations import Duration, check_timeout, check_ttl, parse_duration
from holdfast._config.options import ClientOptions, check_flag, check_replicas
from holdfast._config.targets import Target
from holdfast._core import lifecycle
from holdfast._core.core import Core
from holdfast._core.policy import Policy
from holdfast._runtime.base import Runtime
from holdfast._runtime.blocking import BLOCKING
from holdfast.engines.base import EXCLUSIVE, Engine, Guarantees, Kind, Mode
from holdfast.engines.registry import make_engine
from holdfast.errors import EngineUnavailable, UsageError
from holdfast.lease import NotPortable

if TYPE_CHECKING:
    from holdfast.observer.delivery import ObserverCell
    from holdfast.observer.events import Observer
    from holdfast.observer.reports import Reports

#: What ``client.lock`` takes beside the name: the error for a wrong keyword names the nearest of these.
LOCK_KEYWORDS: Final = ("ttl", "renew", "timeout", "fair", "reentrant", "max_hold", "replicas", "on_lost", "require")

#: What ``client.rwlock`` and ``client.semaphore`` take: their waiters always queue in order, and whether a caller may
#: take them again is not a choice.
SHARED_KEYWORDS: Final = tuple(keyword for keyword in LOCK_KEYWORDS if keyword not in ("fair", "reentrant"))

_KINDS: Final = {
    Kind.LOCK: "locks",
    Kind.ELECTION: "elections",
    Kind.RWLOCK: "read-write locks",
    Kind.SEMAPHORE: "semaphores",
    Kind.BARRIER: "barriers",
}

#: The default of a policy keyword: use the client's own setting.
_DEFAULT: Final[Any] = type("Default", (), {"__repr__": lambda self: "<as the client>"})()


class BaseClient(NotPortable):
    """What Client and AsyncClient share. It opens on first use; a forked child opens it again."""

    _remedy = "pass the URL and connect() there"

    def __init__(self, target: Target) -> None:
        self._options: ClientOptions = target.options
        self._observer_cell: ObserverCell | None = None
        if target.options.observer is not None:
            self._own_observer(target.options.observer)
        self._engine: Engine = make_engine(target)
        self._opened: Core | None = None
        self._opening = threading.RLock()  # re-entrant: a signal handler may use the client that is being opened
        self._closed = False
        lifecycle.register_client(self)

    def _after_fork_in_child(self) -> None:
        """Replace the lock: another thread may have held it at the fork, and that thread does not exist here."""
        self._opening = threading.RLock()

    @property
    def guarantees(self) -> Guarantees:
        """What this engine guarantees, as data. ``loss_bound`` and ``needs_clocks`` state the limits."""
        return self._engine.guarantees

    def _open_on(self, front: Callable[[], Runtime]) -> Core:
        with self._opening:
            if self._closed:
                raise UsageError("this client is closed; connect() again")
            if self._opened is None or self._opened.disowned:
                core = self._make_core(front)
                lifecycle.register(core)
                if self._opened is None or self._opened.disowned:  # else a signal handler has opened it meanwhile
                    self._opened = core
            return self._opened

    def _make_core(self, front: Callable[[], Runtime]) -> Core:
        try:
            core = Core(self._engine, self._options, front(), BLOCKING)
            core.reports = self._open_reports(core.front)
            if core.reports is not None:
                core.direct = None
            return core
        except OSError as error:  # no descriptor is left
            raise EngineUnavailable(f"{self._engine!r} cannot be opened: {error}") from error

    def _own_observer(self, observer: Observer) -> None:
        """Keep the observer in the client only: the core may outlive the client, and the observer may refer to it."""
        from holdfast.observer.delivery import ObserverCell  # imported here: few programs have an observer

        self._observer_cell = ObserverCell(observer)
        self._options = dataclasses.replace(self._options, observer=None)

    def _open_reports(self, front: Runtime) -> Reports | None:
        if self._observer_cell is None:
            return None
        from holdfast.observer.reports import open_reports

        return open_reports(self._engine, front, self._observer_cell)

    def _policy(
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
        on_lost: Callable[[Any], Any] | None = None,
        require: Collection[str] = (),
        mode: Mode = EXCLUSIVE,
    ) -> Policy:
        self._require(require)
        self._offers(mode.kind, name)
        if fair and not self._engine.guarantees.fair:
            raise UsageError(f"{self._engine!r} keeps no order among its waiters: leave fair at False", name=name)
        key = names.qualify(self._options.namespace, names.validate(name))
        self._engine.validate_name(key)
        return Policy(
            name=name,
            key=key,
            ttl=self._options.ttl if ttl is _DEFAULT else check_ttl(ttl),
            renew=self._options.renew if renew is _DEFAULT else check_flag(renew, "renew"),
            timeout=check_timeout(timeout),
            fair=check_flag(fair, "fair"),
            reentrant=check_flag(reentrant, "reentrant"),
            max_hold=None if max_hold is None else parse_duration(max_hold, what="max_hold"),
            replicas=self._replicas(replicas),
            on_lost=on_lost,
            request_timeout=self._options.request_timeout,
            mode=mode,
        )

    def _offers(self, kind: Kind, name: str) -> None:
        if kind not in self._engine.kinds:
            why_not = getattr(self._engine, "why_not", None)  # of an engine that has a reason to give
            reason = "see client.guarantees" if why_not is None else why_not(kind)
            raise UsageError(f"{self._engine!r} has no {_KINDS[kind]}: {reason}", name=name)

    def _replicas(self, given: int) -> int:
        replicas: int = self._options.replicas if given is _DEFAULT else check_replicas(given)
        if replicas and not self._engine.replicates:
            # Ignoring it would promise an acknowledgement that the engine does not wait for.
            raise UsageError(f"{self._engine!r} has no replicas to wait for: leave replicas at 0")
        return replicas

    def _require(self, required: Collection[str]) -> None:
        for promise in {required} if isinstance(required, str) else required:
            given = getattr(self._engine.guarantees, promise, None)
            if not isinstance(given, bool):
                raise UsageError(f"no such guarantee: {promise!r}")
            if not given:
                raise UsageError(f"{self._engine!r} does not give {promise!r}; see client.guarantees")

    def __del__(self) -> None:
        core = getattr(self, "_opened", None)
        if core is not None and not core.disowned:
            core.orphan()  # closed or not: a signal may have interrupted its close

    def __repr__(self) -> str:
        return f"<{type(self).__name__} on {self._engine!r}>"
