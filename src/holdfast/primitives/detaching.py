"""A held lock for another process: ``lease.detach()`` returns a ticket, ``client.attach(ticket)`` takes the lock over.

While it is detached, the owner of the lock at the engine is the SHA-256 of a secret that only the ticket has: what
``inspect`` shows is of no use to take it. The lease ends in this process *before* the first byte is sent, as for a
release; so at no moment two processes count the lock as theirs. Attaching replaces that owner by the new lease's, with
a new token, in one step at the engine: of two attaches one finds the owner of the ticket, the other one does not.

No client renews a detached lock. If the ticket is lost, it is free when its ttl is over.
"""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import json
import random
import secrets
import weakref
from collections.abc import Coroutine
from typing import Any, Final, NamedTuple, cast

from holdfast._config.durations import check_ttl
from holdfast._core import releasing, retry
from holdfast._core.acquisition import Acquisition
from holdfast._core.core import Core
from holdfast._core.hold import Hold
from holdfast._core.policy import Policy
from holdfast.base_client import BaseClient
from holdfast.engines.base import EXCLUSIVE, Attempt, Busy, Claim, Engine, Found, Granted, RequestFailed
from holdfast.engines.optional_sessions import TransferSession
from holdfast.errors import InvalidName, NotHeld, OutcomeUnknown, UsageError
from holdfast.lease import BaseLease

#: What a ticket begins with: its kind and the version of its format.
_PREFIX: Final = "holdfast-ticket-1."
_SECRET_BYTES: Final = 32


class Ticket(NamedTuple):
    """What the text of a ticket says. It is a secret: never part of a message, a log record or a repr."""

    engine: str  #: the scheme of the engine. Not its address: other hosts may know it by another name
    namespace: str
    name: str
    ttl: float
    secret: str

    @property
    def owner(self) -> str:
        """The owner of the lock at the engine, until the ticket is used. An id and a number, as all owners are."""
        return f"{hashlib.sha256(self.secret.encode()).hexdigest()}:0"

    def text(self) -> str:
        fields = json.dumps(tuple(self), ensure_ascii=False, separators=(",", ":")).encode()
        return _PREFIX + base64.urlsafe_b64encode(fields).decode().rstrip("=")

    def __repr__(self) -> str:
        return f"<Ticket for {self.name!r}>"


def parse(text: Any) -> Ticket:
    """The ticket with this text; UsageError if it is none. The text is not part of the error."""
    if isinstance(text, str) and text.startswith(_PREFIX):
        encoded = text.removeprefix(_PREFIX)
        try:
            engine, namespace, name, ttl, secret = json.loads(
                base64.urlsafe_b64decode(encoded + -len(encoded) % 4 * "=")
            )
            if all(isinstance(field, str) for field in (engine, namespace, name, secret)):
                return Ticket(engine, namespace, name, check_ttl(ttl), secret)
        except (ValueError, TypeError):
            pass
    raise UsageError("attach() takes a ticket, the text that lease.detach() returned: this is none, or not all of it")


# -- detaching -----------------------------------------------------------------------------------------------------


def _check_detachable(engine: Engine, hold: Hold) -> None:
    if hold.policy.mode is not EXCLUSIVE:
        raise UsageError(
            f"{hold.policy.title} cannot be detached: only a plain lock has one holder to be replaced",
            name=hold.policy.name,
        )
    _check_engine(engine, hold.policy.name)
    if len(hold.handles) > 1:
        raise _has_other_leases(hold)


def _check_engine(engine: Engine, name: str) -> None:
    if not engine.guarantees.detach:
        raise UsageError(
            f"lock {name!r}: {engine!r} does not give 'detach': it cannot replace the holder of a lock by another one, "
            "with a larger token, in one step; release it there and acquire it here",
            name=name,
        )


def _has_other_leases(hold: Hold) -> UsageError:
    return UsageError(
        f"{hold.policy.title} cannot be detached: this caller has other leases on it, or at_least keeps it; "
        "release these first",
        name=hold.policy.name,
    )


class Detachment:
    """One call of ``detach``: ends the hold of a lease, which must be its only handle, and makes it that of a ticket.

    If it raises, or a signal comes before its caller has the ticket, the caller must ``withdraw`` it. If that is
    interrupted too, the watchdog does it; or else, once there is a ticket, its ttl ends it.
    """

    def __init__(self, lease: BaseLease) -> None:
        lease.check()
        self._lease = lease
        self._hold = hold = lease._hold
        self._core = core = hold.core
        _check_detachable(core.engine, hold)
        grant = hold.grant
        claim = grant.attempt.claim
        self._ticket = Ticket(
            core.engine.scheme,
            core.options.namespace,
            hold.policy.name,
            grant.ttl,
            secrets.token_urlsafe(_SECRET_BYTES),
        )
        self._attempt: Attempt = core.session.attempt(
            Claim(
                claim.name,
                self._ticket.owner,
                grant.ttl,
                replicas=claim.replicas,
                description=claim.description,
                detached=True,
            )
        )
        self._done = False

    def run(self) -> Coroutine[Any, Any, str]:
        """The text of the ticket."""
        coroutine = self._run()
        self._core.detaching.begin(self, weakref.ref(coroutine, self._core.detaching.on_garbage))
        return coroutine

    async def _run(self) -> str:
        core, hold = self._core, self._hold
        with core.lock:
            hold.grant.stop_handovers()  # it is for the ticket, not for the next local waiter
        await releasing.release(core, hold, self._lease, self._finish)
        if not self._done:
            raise _has_other_leases(hold)  # a signal handler of this caller has re-entered the lock meanwhile
        text = self._ticket.text()
        core.detaching.end(self)
        return text

    async def _finish(self, core: Core, hold: Hold) -> None:
        """Instead of the release at the engine. The hold is RELEASING: not held from before the first byte of this."""
        limit = min(hold.grant.deadline, core.front.now() + core.options.unavailable_after)
        answer = await retry.until_answered(core.front, self._request, limit, self._give_up, random.random)
        if isinstance(answer, Found):
            reason = hold.grant.why_lost(answer, core.front.now())
            releasing.ended(core, hold, reason)
            raise hold.loss(reason)
        releasing.ended(core, hold, None)
        self._done = True

    def withdraw(self) -> None:
        """The user gets no ticket, so the lock must not stay with it. No I/O. (If it never did, the lease still has it,
        or the release was abandoned, and the lock of the lease is withdrawn.)"""
        self._attempt.unresolved = True
        self._core.withdraw(self._attempt)
        self._core.detaching.end(self)

    async def _request(self) -> Granted | Found:
        session = cast("TransferSession[Any]", self._core.session)
        try:
            return await session.transfer(
                self._attempt, self._hold.grant.attempt.owner, self._hold.policy.request_timeout
            )
        except RequestFailed as failure:
            self._attempt.unresolved |= failure.may_have_happened
            raise

    def _give_up(self, failure: RequestFailed) -> Exception:
        policy = self._hold.policy
        return OutcomeUnknown(
            f"{policy.title}: {self._core.engine!r} did not answer, so it is not known whether it was detached; "
            "there is no ticket for it, holdfast goes on releasing it, and it is free at its ttl at the latest",
            operation="detach",
            name=policy.name,
        )


# -- attaching -----------------------------------------------------------------------------------------------------


def policy_of(client: BaseClient, text: str) -> Policy:
    """The policy under which ``client`` holds the lock of a ticket. UsageError if it is not for this client."""
    ticket = parse(text)
    engine, options = client._engine, client._options
    if ticket.engine != engine.scheme:
        raise UsageError(f"this ticket is for a {ticket.engine} engine, and not for {engine!r}", name=ticket.name)
    if ticket.namespace != options.namespace:
        raise UsageError(
            f"this ticket is for the namespace {ticket.namespace!r}, and this client has {options.namespace!r}",
            name=ticket.name,
        )
    _check_engine(engine, ticket.name)
    try:
        policy = client._policy(ticket.name, ttl=ticket.ttl)
    except InvalidName as error:
        raise UsageError(f"this ticket is for no lock of {engine!r}: {error}", name=ticket.name) from error
    return dataclasses.replace(policy, attached=True)


def attach(core: Core, policy: Policy, text: str, lease: BaseLease) -> Coroutine[Any, Any, None]:
    """Make ``lease`` the first handle of a new hold: that of the ticket's lock.

    Cancelled or interrupted, nothing stays behind, and the ticket may be used up.
    """
    lease._caller = core.front.caller()
    attachment = _Attachment(core, policy, parse(text))
    return core.begin(attachment, lease)


class _Attachment(Acquisition):
    """An acquisition that takes the lock from the owner of a ticket, and waits for no other."""

    operation = "attach"

    def __init__(self, core: Core, policy: Policy, ticket: Ticket) -> None:
        super().__init__(core, policy, None)
        self._ticket = ticket

    async def _ask(self, attempt: Attempt, timeout: float) -> Granted | Busy:
        session = cast("TransferSession[Any]", self._core.session)
        answer = await session.transfer(attempt, self._ticket.owner, timeout)
        if isinstance(answer, Found):
            name = self._policy.name
            raise NotHeld(
                f"the ticket for lock {name!r} is of no use: it was used before, its time is over, the lock was "
                f"broken, or it is not of {self._core.engine!r}",
                name=name,
            )
        return answer
