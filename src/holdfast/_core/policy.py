"""What a Lock object is made of: a name and how to hold it."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final

from holdfast._core import lease_time
from holdfast.engines.base import EXCLUSIVE, Kind, Mode
from holdfast.engines.registers import RegisterKey

#: What a lease holds, by the noun of the object, where that is a share of it.
_SHARES: Final = {
    "semaphore": "a permit of semaphore",
    "election": "the leadership of election",
    "barrier": "the membership of barrier",
}
#: The kinds that an engine may be asked for directly.
_DIRECT: Final = (Kind.LOCK, Kind.RWLOCK, Kind.SEMAPHORE)


@lru_cache(maxsize=64)
def _times_of(ttl: float) -> tuple[float, float]:
    """``valid_for`` and ``renew_after`` of policies. Remembered: thousands of policies share the same two numbers."""
    valid_for = lease_time.deadline(0.0, ttl)
    return valid_for, min(lease_time.renew_at(0.0, ttl), valid_for)


@dataclass(frozen=True, slots=True)
class Policy:
    """A name and a policy. ``name`` is the user's; ``key`` is the engine's, with the namespace."""

    name: str
    key: str
    ttl: float
    renew: bool = True
    timeout: float | None = None
    fair: bool = False
    reentrant: bool = True
    max_hold: float | None = None
    replicas: int = 0
    on_lost: Callable[[Any], Any] | None = None
    request_timeout: float = 1.0  #: how long one request about this lock may take
    mode: Mode = EXCLUSIVE
    value: str | None = None  #: what a candidate says of itself, shown by ``inspect``
    called: str | None = None  #: what messages call it, if not by its kind
    register: RegisterKey | None = None  #: loaded with each grant, if the engine can: it is used in each hold
    attached: bool = False  #: it is taken over from a ticket: there is nothing to wait for in this process
    at_engine: bool = field(init=False)  #: every waiter queues at the engine, and none in the process
    place: Hashable = field(init=False)  #: with the caller, what finds the hold that a re-entry joins
    direct: bool = field(init=False)  #: the engine may be asked directly, see ``Core.direct``
    valid_for: float = field(init=False)  #: how long a confirmed request makes a hold valid, from before it was sent
    renew_after: float = field(init=False)  #: when to renew it, from the same moment

    def __post_init__(self) -> None:
        object.__setattr__(self, "request_timeout", lease_time.request_timeout(self.request_timeout, self.ttl))
        valid_for, renew_after = _times_of(self.ttl)
        object.__setattr__(self, "valid_for", valid_for)
        object.__setattr__(self, "renew_after", renew_after)
        # Only the engine knows the order of arrival over all processes, and which requests do not conflict.
        object.__setattr__(self, "at_engine", self.fair or self.attached or self.mode is not EXCLUSIVE)
        object.__setattr__(self, "place", self.place_of(self.mode))
        plain = not self.fair and not self.attached and not self.replicas
        plain = plain and self.value is None and self.register is None and self.mode.kind in _DIRECT
        object.__setattr__(self, "direct", plain)

    def place_of(self, mode: Mode) -> Hashable:
        """``place``, of a policy for the same name and another mode."""
        return self.key if mode is EXCLUSIVE else (self.key, mode.kind, mode.shared)

    @property
    def shown(self) -> str:
        """Its name as a repr shows it; with the mode, unless that is the usual one."""
        return repr(self.name) if self.mode.label == EXCLUSIVE.label else f"{self.name!r} ({self.mode.label})"

    @property
    def title(self) -> str:
        """What messages call it, with its name."""
        return f"{self.noun} {self.name!r}"

    @property
    def noun(self) -> str:
        """What messages call it, before its name."""
        if self.called is not None:
            return self.called
        if self.mode.kind is Kind.RWLOCK:
            return "read lock" if self.mode.shared else "write lock"
        return str(self.mode.kind.value)

    @property
    def share(self) -> str:
        """What of it a lease holds, before its name: of a semaphore not all, but permits."""
        return _SHARES.get(self.noun, self.noun)

    def shares_hold_with(self, other: Policy) -> bool:
        """Whether re-entry under this policy may join a hold made under ``other``."""
        return (
            self.ttl == other.ttl
            and self.fair == other.fair
            and self.replicas == other.replicas
            and self.renew == other.renew
            and self.max_hold == other.max_hold
        )

    def may_inherit_from(self, other: Policy) -> bool:
        """Whether a hold made under ``other`` may be handed to a waiter with this policy."""
        return (
            not (self.fair or other.fair)
            and self.ttl == other.ttl
            and self.renew == other.renew
            and self.replicas == other.replicas
        )
