"""What one request for renewal brought, sorted for the log and the observer. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from holdfast._core.grant import Grant
from holdfast.engines.base import Found


class RenewedBatch:
    """Made before the answers take effect: ``grant.failing`` still tells about the renewal before."""

    __slots__ = ("confirmed", "failed", "failure", "newly_failing", "recovered")

    def __init__(self, grants: Sequence[Grant], answers: Iterable[Found | Exception]) -> None:
        self.confirmed: list[Grant] = []
        self.recovered: list[Grant] = []  #: of the confirmed, those whose last renewal had failed
        self.failed: list[Grant] = []
        self.newly_failing: list[Grant] = []  #: of the failed, those whose last renewal had succeeded
        self.failure: Exception | None = None  #: of the first that failed
        for grant, answer in zip(grants, answers, strict=True):
            if answer is Found.OURS:
                self.confirmed.append(grant)
                if grant.failing:
                    self.recovered.append(grant)
            elif isinstance(answer, Exception):
                self.failed.append(grant)
                if not grant.failing:
                    self.newly_failing.append(grant)
                if self.failure is None:
                    self.failure = answer
