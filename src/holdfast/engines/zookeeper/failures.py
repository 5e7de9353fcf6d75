"""Translates kazoo's exceptions into the port's two kinds: retry, or do not. Pure."""

from __future__ import annotations

import ssl
from collections.abc import Sequence
from typing import Any, Final

from kazoo import exceptions

from holdfast.engines.base import RequestFailed
from holdfast.engines.zookeeper.handler import TlsSetupFailed
from holdfast.errors import EngineRefused

#: Answers that are not failures: callers handle them.
ANSWERS: Final = (
    exceptions.NoNodeError,
    exceptions.NodeExistsError,
    exceptions.BadVersionError,
    exceptions.NotEmptyError,
)
#: The results of those operations of a failed multi that did not cause the failure.
_ROLLED_BACK: Final = (exceptions.RolledBackError, exceptions.RuntimeInconsistency)
_REFUSED: Final[dict[type[Exception], str]] = {
    exceptions.AuthFailedError: "check the user name and password",
    exceptions.NoAuthError: "the ACL of the node must allow this user to create, delete and read",
    exceptions.InvalidACLError: "acl=creator needs credentials",
    exceptions.NoChildrenForEphemeralsError: "a node above the lock is ephemeral; choose another path",
    exceptions.BadArgumentsError: "the path is not accepted; choose another name",
    exceptions.QuotaExceededError: "the quota of the path is used up",
    exceptions.UnimplementedError: "ZooKeeper 3.5 or later is needed",
    exceptions.SessionClosedRequireSaslError: "the servers demand SASL; give sasl_mechanism and what belongs to it",
}
#: The request was not executed.
_NOT_SENT: Final = (exceptions.ConnectionClosedError, exceptions.NotReadOnlyCallError, exceptions.ThrottledOpError)


def explained(error: BaseException) -> Exception:
    """The exception to raise in place of kazoo's ``error``."""
    for kind, remedy in _REFUSED.items():
        if isinstance(error, kind):
            return EngineRefused(f"ZooKeeper refused: {type(error).__name__} ({remedy})")
    text = str(error) or type(error).__name__
    return RequestFailed(f"ZooKeeper did not answer: {text}", may_have_happened=not isinstance(error, _NOT_SENT))


def failed_operation(results: Sequence[Any]) -> tuple[int, Exception] | None:
    """Which operation of a multi failed, and why; None if all took effect."""
    failures = [(index, each) for index, each in enumerate(results) if isinstance(each, Exception)]
    causes = [failure for failure in failures if not isinstance(failure[1], _ROLLED_BACK)]
    return next(iter(causes or failures), None)


def unconnected(last_error: Exception | None, *, rejected: bool) -> RequestFailed | EngineRefused:
    """The exception to raise when there is no connection and the last attempt failed with ``last_error``. ``rejected``:
    no server has a certificate that we accept."""
    if rejected and isinstance(last_error, ssl.SSLCertVerificationError):
        return EngineRefused(f"the ZooKeeper server's certificate was not accepted: {last_error.verify_message}")
    if isinstance(last_error, TlsSetupFailed):
        return EngineRefused(f"TLS could not be set up: {last_error}")
    if isinstance(last_error, exceptions.SASLException):
        return EngineRefused("SASL could not be used: it needs pip install 'pure-sasl', and for GSSAPI 'kerberos'")
    reason = "" if last_error is None else f": {last_error}"
    return RequestFailed(f"no ZooKeeper server could be reached{reason}", may_have_happened=False)
