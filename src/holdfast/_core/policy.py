"""What a Lock object is made of: a name and how to hold it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Policy:
    """A name and a policy. ``name`` is the user's; ``key`` is the engine's, with the namespace."""

    name: str
    key: str
    ttl: float
    request_timeout: float  #: how long one request about this lock may take
    renew: bool = True
    timeout: float | None = None
    fair: bool = False
    reentrant: bool = True
    max_hold: float | None = None
    replicas: int = 0
    on_lost: Callable[[Any], Any] | None = None

    def shares_hold_with(self, other: Policy) -> bool:
        """Whether re-entry under this policy may join a hold made under ``other``."""
        return self.ttl == other.ttl and self.fair == other.fair and self.replicas == other.replicas

    def may_inherit_from(self, other: Policy) -> bool:
        """Whether a hold made under ``other`` may be handed to a waiter with this policy (RULES 5)."""
        return (
            not (self.fair or other.fair)
            and self.ttl == other.ttl
            and self.renew == other.renew
            and self.replicas == other.replicas
        )
