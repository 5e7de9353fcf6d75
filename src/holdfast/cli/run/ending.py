"""After the command has ended: keep the lock for ``--at-least``, release it, report its loss."""

from __future__ import annotations

import select
import time
from typing import TYPE_CHECKING

from holdfast._runtime import clock
from holdfast.cli import exit_codes
from holdfast.cli.output import write_error
from holdfast.cli.run.outcome import COMMAND, Outcome
from holdfast.cli.run.signals import ENDING, Signalled, Signals
from holdfast.errors import LockError, LockLost, LossReason

if TYPE_CHECKING:
    from holdfast.engines.base import Holder
    from holdfast.lease import Lease


def finish(lease: Lease, until: float, signals: Signals) -> LossReason | None:
    """Keep the lock until ``until``, then release it. Returns the loss reason if it was lost while the command ran."""
    if clock.now() >= until:
        return release(lease, signals)
    try:
        lease.renew()  # asks the engine whether the lock was held up to now
    except LockLost as loss:
        return loss.reason
    except LockError:
        pass  # unknown, but the deadline has not passed
    _keep(lease, until, signals)
    reason = release(lease, signals)
    if reason is not None:
        _warn(f"{lease._hold.loss(reason)}; the command had ended before that")
    return None


def release(lease: Lease, signals: Signals) -> LossReason | None:
    """Release the lock. Returns the loss reason if it was lost. Other failures are warnings: the lock expires."""
    try:
        try:
            signals.interrupt()  # a signal ends the wait for an engine that does not answer
            lease.release()
        finally:
            signals.collect()
    except LockLost as loss:
        return loss.reason
    except LockError as error:
        _warn(f"the lock may not be released: {error}")
    except Signalled:
        signals.collect()
        _warn(f"interrupted while {lease._hold.policy.title} was being released; it ends with its ttl at the latest")
    return None


def lost(lease: Lease, reason: LossReason, command: int | None) -> Outcome:
    """The outcome of a lock that was lost while the command ran. ``command``: its exit code; None: it never started."""
    message = str(lease._hold.loss(reason))
    if command is None:
        message += "; the command was not started"
        return Outcome("unavailable", exit_codes.UNAVAILABLE, message, lost_reason=reason)
    if command < 0:
        message += f"; the command died of signal {-command}"
    else:
        message += f"; the command exited with {command}"
    number = -command if command < 0 else None
    return Outcome("lost", exit_codes.LOST, message, command, number, reason)


def describe(holder: Holder) -> str:
    """`` (held by …)``, with the facts that are known."""
    facts = [] if holder.host is None else [f"host {holder.host}"]
    facts += [] if holder.pid is None else [f"pid {holder.pid}"]
    facts += [] if holder.program is None else [f"program {holder.program}"]
    facts += [] if holder.label is None else [f"label {holder.label}"]
    if holder.since is not None:
        facts.append(f"since {time.strftime('%Y-%m-%d %H:%M:%S %z', time.localtime(holder.since))}")
    return f"; held by {', '.join(facts) if facts else holder.owner}"


def _keep(lease: Lease, until: float, signals: Signals) -> None:
    """Wait holding the lock, until a signal that would have ended the command, or its loss."""
    poll = select.poll()
    poll.register(signals.reading, select.POLLIN)
    while lease.held and (left := until - clock.now()) > 0:
        poll.poll(min(left, 0.5) * 1000 + 1)
        if ENDING.intersection(signals.take()):
            return


def _warn(text: str) -> None:
    write_error(text, command=COMMAND)
