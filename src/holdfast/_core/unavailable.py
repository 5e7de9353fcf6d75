"""Which error tells that an engine did not answer: one for a server, one for a majority of several. Pure."""

from __future__ import annotations

from holdfast.engines.base import RequestFailed
from holdfast.errors import EngineUnavailable, QuorumLost, QuorumLostOutcomeUnknown, UnavailableOutcomeUnknown


def error(message: str, failure: RequestFailed, *, name: str | None = None) -> EngineUnavailable:
    """For a request that did not take effect."""
    if failure.errors is None:
        return EngineUnavailable(message, name=name)
    return QuorumLost(message, name=name, errors=failure.errors)


def outcome_unknown(message: str, failure: RequestFailed, *, operation: str, name: str) -> EngineUnavailable:
    """For a request that may have taken effect."""
    if failure.errors is None:
        return UnavailableOutcomeUnknown(message, operation=operation, name=name)
    return QuorumLostOutcomeUnknown(message, operation=operation, name=name, errors=failure.errors)
