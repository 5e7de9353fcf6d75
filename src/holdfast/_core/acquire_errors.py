"""Why an acquire has failed: its errors, each with the name, what happened, and what happens next. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast._core import retry
from holdfast.engines.base import Attempt, Engine, RequestFailed
from holdfast.errors import AcquireTimeout, EngineUnavailable, UsageError

if TYPE_CHECKING:
    from holdfast._core.policy import Policy


def busy(policy: Policy, timeout: float | None) -> AcquireTimeout:
    waited = f"stayed busy for {timeout:g} s" if timeout else "is busy"
    return AcquireTimeout(f"{policy.title} {waited}", name=policy.name, timeout=timeout or 0.0)


def other_settings(policy: Policy) -> UsageError:
    return UsageError(
        f"{policy.title} is held by this caller with another ttl, fair, replicas, renew or "
        "max_hold: use the same settings to re-enter, or reentrant=False to wait",
        name=policy.name,
    )


def other_ttl(policy: Policy) -> UsageError:
    return UsageError(
        f"write lock {policy.name!r} is held by this caller with another ttl: take the read lock with the same",
        name=policy.name,
    )


def no_upgrade(policy: Policy) -> UsageError:
    return UsageError(
        f"write lock {policy.name!r}: this caller holds the read lock, which cannot be upgraded: release it "
        "first, or take the write lock from the start",
        name=policy.name,
    )


def late() -> RequestFailed:
    """The answer took longer than the lease (a pause between send and check): it is useless."""
    return RequestFailed("the answer came after the lease had run out", may_have_happened=True)


def unreachable_ahead(policy: Policy, engine: Engine) -> EngineUnavailable:
    return EngineUnavailable(
        f"{policy.title}: {engine!r} did not answer the caller ahead in this process", name=policy.name
    )


def unavailable(
    engine: Engine, policy: Policy, attempt: Attempt, operation: str, seconds: float, failure: RequestFailed
) -> EngineUnavailable:
    """The engine did not answer for ``seconds``. If it may have granted the attempt, the outcome is unknown."""
    if attempt.unresolved:
        return retry.outcome_unknown(
            f"{policy.title}: {engine!r} stopped answering for {seconds:.1f} s after the {operation} was "
            "sent; it may have been granted; holdfast goes on withdrawing it, and it ends by itself at its ttl",
            failure,
            operation=operation,
            name=policy.name,
        )
    return retry.unavailable(
        f"{policy.title}: {engine!r} could not serve for {seconds:.1f} s: {failure}", failure, name=policy.name
    )
