"""The steps of a run: check, fork the guardian, connect, acquire, run, release, report."""

from __future__ import annotations

import argparse
import errno
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from holdfast._runtime import clock
from holdfast.cli import exit_codes
from holdfast.cli.output import write_error
from holdfast.cli.run import environment, lookup, schedule
from holdfast.cli.run.arguments import Order, read
from holdfast.cli.run.guardian import fork_guardian
from holdfast.cli.run.launcher import Program, ignored_signals
from holdfast.cli.run.link import Link
from holdfast.cli.run.outcome import COMMAND, KINDS, Outcome, Report, Times, shell_code
from holdfast.cli.run.signals import Signalled, Signals
from holdfast.errors import AcquireTimeout, LockError, LockLost, UsageError

if TYPE_CHECKING:
    from holdfast.client import Client, Lock
    from holdfast.lease import Lease
    from holdfast.primitives.semaphore import Semaphore


def main(arguments: argparse.Namespace) -> int:
    """Run the command; returns the exit code. An error is one line on stderr."""
    report, times, name = Report(None), Times(), ""
    try:
        order = read(arguments)
        name = order.name
        report = Report(order.report)
        outcome = _run(order, report, times)
    except UsageError as error:
        outcome = Outcome("usage", exit_codes.USAGE, str(error))
    except Signalled as signalled:  # before the grant; the claim has been withdrawn
        number = signalled.number
        outcome = Outcome("signalled", exit_codes.SIGNALLED + number, signal=number)
    if outcome.message is not None:
        write_error(outcome.message, command=COMMAND)
    report.write(name, outcome, times)
    return outcome.code


def _run(order: Order, report: Report, times: Times) -> Outcome:
    given = environment.original()
    program = lookup.find(order.argv[0], given)
    if isinstance(program, lookup.CannotRun):
        return _cannot_run(program)
    ignored = ignored_signals()
    with Signals(ignored) as signals:
        try:
            link, pid = fork_guardian(Program(program, order.argv, ignored), given, report.private)
        except OSError as error:
            return Outcome("cannot_run", exit_codes.CANNOT_RUN, f"no process can be started: {error.strerror}")
        try:
            return _Run(order, given, signals, link, pid, times).run()
        finally:
            from holdfast.cli.run.supervisor import dismiss

            signals.collect()
            dismiss(link, pid)


def _cannot_run(why: lookup.CannotRun) -> Outcome:
    kind: Any = "not_found" if why.code == exit_codes.NOT_FOUND else "cannot_run"
    return Outcome(kind, why.code, why.message)


class _Run:
    """One run, from the fork of the guardian on."""

    def __init__(
        self, order: Order, given: Mapping[str, str], signals: Signals, link: Link, guardian: int, times: Times
    ) -> None:
        self._order = order
        self._given = given
        self._signals = signals
        self._link = link
        self._guardian = guardian
        self._times = times
        self._lease: Lease | None = None  # referenced until the client is closed: a dropped lease warns

    def run(self) -> Outcome:
        try:
            client = _connect(self._order)
            _check_engine(client)
        except (LockError, ValueError, TypeError) as error:
            _log_traceback(error)
            return Outcome("settings", exit_codes.SETTINGS, str(error))
        try:
            lock, marked = self._lock(client)
            return self._with_lock(client, lock, marked)
        except LockLost as loss:  # before the command was started
            return Outcome("unavailable", exit_codes.UNAVAILABLE, str(loss), lost_reason=loss.reason)
        except LockError as error:
            _log_traceback(error)
            code = exit_codes.code_for(error)
            return Outcome(KINDS.get(code, "unavailable"), code, str(error))
        except ValueError as error:
            return Outcome("usage", exit_codes.USAGE, str(error))
        finally:
            self._signals.collect()  # closing is bounded; a second Ctrl-C must not keep it from withdrawing the claim
            client.close()

    def _lock(self, client: Client) -> tuple[Lock | Semaphore, str]:
        order = self._order
        ttl = client._options.ttl if order.ttl is None else order.ttl
        if ttl < schedule.SHORTEST_TTL:
            raise UsageError(f"a ttl of {ttl:g} s is too short to stop a command in time: give --ttl 3s or more")
        if order.grace is not None and order.grace > ttl / schedule.GRACE_SHARE:
            raise UsageError(f"--grace {order.grace:g}s is more than a third of the ttl of {ttl:g} s")
        lock = self._of_kind(client, ttl)
        marked = environment.mark(client, order.name)
        if environment.held_by_ancestor(self._given, marked):
            raise UsageError(
                f"{lock._policy.title} is held by the holdfast run that started this one ({environment.HELD}), so it "
                "would wait for itself: use another name, or run the command directly"
            )
        return lock, marked

    def _of_kind(self, client: Client, ttl: float) -> Lock | Semaphore:
        order = self._order
        if order.semaphore is not None:
            return client.semaphore(order.name, order.semaphore, ttl=ttl, max_hold=order.max_hold)
        if order.shared or order.exclusive:
            rwlock = client.rwlock(order.name, ttl=ttl, max_hold=order.max_hold)
            return rwlock.read if order.shared else rwlock.write
        # Not re-entrant: another holder of the name is always another process.
        return client.lock(order.name, ttl=ttl, fair=order.fair, max_hold=order.max_hold, reentrant=False)

    def _with_lock(self, client: Client, lock: Lock | Semaphore, marked: str) -> Outcome:
        began = clock.now()
        try:
            self._lease = lease = lock.acquire(timeout=self._order.timeout)
        except AcquireTimeout as busy:
            self._times.waited = clock.now() - began
            return Outcome("busy", self._order.conflict_exit_code, f"{busy}{_holders(client, lock.name)}")
        granted = clock.now()
        self._signals.collect()
        self._signals.check()
        self._times.waited, self._times.token, self._times.owner = granted - began, lease.token, lease.owner
        try:
            return self._with_lease(lease, marked, granted)
        finally:
            self._times.held = clock.now() - granted

    def _with_lease(self, lease: Lease, marked: str, granted: float) -> Outcome:
        from holdfast.cli.run import ending
        from holdfast.cli.run.supervisor import Supervisor

        order = self._order
        if order.max_hold is None and lease.remaining < lease.ttl / schedule.GRACE_SHARE:
            lease.renew()  # the grant took so long that the command would be stopped immediately
        grace = schedule.fitting_grace(order.grace, lease.remaining)
        supervisor = Supervisor(lease, self._link, self._guardian, self._signals, grace)
        end = supervisor.run(environment.additions(self._given, lease, marked), environment.liveness(lease))
        if end.guardian_died:
            write_error("its guardian process was killed, so the command was killed too", command=COMMAND)
        if end.failed is not None:
            ending.release(lease, self._signals)
            return _cannot_run(lookup.after_exec(order.argv[0], end.failed or errno.EINVAL))
        if end.code is None or end.stopped or lease.lost_reason is not None:
            by_max_hold = order.max_hold is not None and supervisor.deadline >= granted + order.max_hold - grace
            return ending.lost(lease, lease.lost_reason or ("max_hold" if by_max_hold else "unreachable"), end.code)
        reason = ending.finish(lease, granted + order.at_least, self._signals)
        if reason is not None:
            return ending.lost(lease, reason, end.code)
        number = -end.code if end.code < 0 else None
        return Outcome("ended", shell_code(end.code), command=end.code, signal=number)


def _log_traceback(error: Exception) -> None:
    """For ``--debug``."""
    import logging  # not above: the guardian does not need it

    logging.getLogger("holdfast.run").debug("the lock was not taken", exc_info=error)


def _connect(order: Order) -> Client:
    """A client whose label is the configured one, or else CMD's name."""
    from dataclasses import replace  # not above, as the next: the guardian was forked before

    from holdfast.client import Client, find_target

    target = find_target(order.url, {} if order.profile is None else {"profile": order.profile})
    if target.options.label is None:
        options = replace(target.options, label=lookup.label(order.argv[0], order.shell))
        target = target._replace(options=options)
    return Client(target)


def _check_engine(client: Client) -> None:
    if not client.guarantees.cross_process:
        raise UsageError(f"{client!r} locks inside one process only: give --url, or set HOLDFAST_URL")


def _holders(client: Client, name: str) -> str:
    """For the line about a busy lock: the holder, as far as the engine knows it."""
    from holdfast.cli.run.ending import describe

    try:
        holders = client.inspect(name).holders
    except LockError:
        return ""
    return describe(holders[0]) if holders else ""
