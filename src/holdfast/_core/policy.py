"""What a Lock object is made of: a name and how to hold it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from holdfast._core import lease_time


def check_replicas(replicas: int) -> int:
    """A number of replicas, or the error that says what is wrong with it."""
    if isinstance(replicas, bool) or not isinstance(replicas, int):
        raise TypeError(f"replicas is a {type(replicas).__name__}: give a number of replicas")
    if replicas < 0:
        raise ValueError(f"replicas is negative: {replicas}")
    return replicas


def check_flag(value: bool, what: str) -> bool:
    """A bool, or the error that says what is wrong: ``renew="no"`` would count as True."""
    if not isinstance(value, bool):
        raise TypeError(f"{what} is a {type(value).__name__}: give True or False")
    return value


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
    valid_for: float = field(init=False)  #: how long a confirmed request makes a hold valid, from before it was sent

    def __post_init__(self) -> None:
        object.__setattr__(self, "request_timeout", lease_time.request_timeout(self.request_timeout, self.ttl))
        object.__setattr__(self, "valid_for", lease_time.deadline(0.0, self.ttl))

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
