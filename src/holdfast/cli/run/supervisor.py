"""The runner's side while the command runs: reports the lease to the guardian, passes signals on, waits for the end."""

from __future__ import annotations

import os
import select
import signal
from typing import TYPE_CHECKING, Final, NamedTuple

from holdfast._runtime import clock
from holdfast.cli.output import write_error
from holdfast.cli.run import descendants, schedule
from holdfast.cli.run.link import Link, Message
from holdfast.cli.run.outcome import COMMAND
from holdfast.cli.run.schedule import Plan, Step
from holdfast.cli.run.signals import Signals

if TYPE_CHECKING:
    from holdfast.lease import Lease

#: How often the lease is checked, as a share of its ttl: often enough that the guardian learns of each renewal long
#: before the previous deadline.
_LOOKS_PER_TTL: Final = 12
_LONGEST_LOOK: Final = 1.0
#: A guardian that has not killed this many seconds after a kill was seen to be due is frozen.
_FROZEN_AFTER: Final = 0.05
#: The same for a guardian that has begun to kill and has not finished: it may have been stopped between two signals.
#: Less than ``schedule.KILL_BEFORE``.
_UNFINISHED_AFTER: Final = 0.12
#: Deadlines that differ by less count as equal.
_SAME: Final = 0.001
_LOOK_AGAIN: Final = 0.01
#: A guardian that has not ended this many seconds after it was dismissed is frozen.
_DISMISSED_WITHIN: Final = 2.0


class Ending(NamedTuple):
    """How the command ended. ``code``: its exit code, negative for a signal; None if it was not started."""

    code: int | None = None
    failed: int | None = None  #: errno of exec
    late: bool = False  #: the lease was too short by the time the guardian could start it
    stopped: bool = False  #: it was sent SIGTERM or SIGKILL because its lock was ending
    guardian_died: bool = False  #: not by this process


class Supervisor:
    """One run of one command. ``run`` starts it and returns when all its processes have ended."""

    def __init__(self, lease: Lease, link: Link, guardian: int, signals: Signals, grace: float) -> None:
        self._lease = lease
        self._link = link
        self._guardian = guardian
        self._signals = signals
        self._grace = grace
        self._look_every = min(_LONGEST_LOOK, lease.ttl / _LOOKS_PER_TTL)
        self.deadline = self._read_deadline()  #: the last one that was reported to the guardian
        self._plan: Plan = schedule.until(self.deadline, grace)
        self._reported_loss = False
        self._pid: int | None = None
        self._ending = Ending()
        self._step = Step.NOTHING
        self._overdue_since: float | None = None
        self._refused = False  # a descendant is another user's: neither the guardian nor this process can kill it
        self._killed_guardian = False
        self._over = False

    def run(self, environment: dict[str, str], liveness: int | None) -> Ending:
        """Have the command started with ``environment`` in addition to the guardian's own."""
        self._lease.on_lost(self._signals.wake)
        self._link.send(
            "start",
            [] if liveness is None else [liveness],
            environment=environment,
            deadline=self.deadline,
            grace=self._grace,
        )
        while not self._over:
            self._wait()
            # The lease first: the guardian must know of a loss before it continues a stopped command.
            self._report_lease()
            self._pass_signals_on()
            for message in self._link.receive():
                self._handle(message)
            if self._link.ended and not self._over:
                return self._without_guardian()
            self._unless_frozen()
        return self._ending

    def _wait(self) -> None:
        poll = select.poll()
        poll.register(self._link, self._link.events)
        poll.register(self._signals.reading, select.POLLIN)
        until_due = self._plan.kill_at - clock.now()
        look_again = until_due if until_due > 0 else _FROZEN_AFTER / 4
        poll.poll(min(self._look_every, look_again) * 1000 + 1)

    def _read_deadline(self) -> float:
        now = clock.now()  # read before ``remaining``, so that the deadline is too early rather than too late
        return now + self._lease.remaining

    def _report_lease(self) -> None:
        if self._reported_loss:
            return
        deadline = self._read_deadline()
        reason = self._lease.lost_reason
        if reason is not None:
            self._reported_loss = True
            self._plan = schedule.lost(self._plan, reason, clock.now())
            self._link.send("lost", reason=reason)
        elif abs(deadline - self.deadline) > _SAME:
            self.deadline = deadline
            self._plan = schedule.renewed(self._plan, deadline, self._grace, self._step)
            self._link.send("deadline", deadline=deadline)

    def _pass_signals_on(self) -> None:
        for number in self._signals.take():
            if number == signal.SIGCONT:
                self._link.send("continue")
            else:
                self._link.send("signal", number=number)

    def _handle(self, message: Message) -> None:
        kind = message["kind"]
        if kind == "started":
            self._pid = message["pid"]
        elif kind == "failed":
            self._ending, self._over = Ending(failed=message["errno"]), True
        elif kind == "late":
            self._ending, self._over = Ending(late=True), True
        elif kind == "step":
            self._step = Step(message["step"])
            self._ending = self._ending._replace(stopped=True)
        elif kind == "ended":
            self._ending = self._ending._replace(code=message["code"])
        elif kind == "stopped":
            self._signals.stop_with(message["number"])
            self._report_lease()
            self._link.send("continue")
        elif kind == "refused":
            self._refused = True
            pids = ", ".join(map(str, message["pids"]))
            write_error(f"another user's processes cannot be killed, waiting for them: pid {pids}", command=COMMAND)
        elif kind == "clear":
            self._over = True

    def _unless_frozen(self) -> None:
        """Kill a guardian that does not act. The kernel then kills the command; this process adopts the descendants.

        Not immediately: this process may have been stopped itself, with messages of the guardian unread. Also if the
        command has ended: descendants that it left must not outlive the lock either.
        """
        now = clock.now()
        began = self._step is Step.KILL or self._ending.code is not None
        if self._over or self._refused or now < self._plan.kill_at:
            self._overdue_since = None
        elif self._overdue_since is None:
            self._overdue_since = now
        elif now - self._overdue_since >= (_UNFINISHED_AFTER if began else _FROZEN_AFTER):
            self._ending = self._ending._replace(stopped=True)
            self._killed_guardian = True
            kill_guardian(self._guardian)

    def _without_guardian(self) -> Ending:
        """The guardian was killed. The kernel has killed the command; kill every descendant of it."""
        if self._pid is not None and not hasattr(os, "pidfd_open"):  # not Linux: neither killed nor adopted
            try:
                os.killpg(self._pid, signal.SIGKILL)
            except OSError:
                pass
        kill_descendants()
        ending = self._ending._replace(guardian_died=not self._killed_guardian)
        return ending if ending.code is not None else ending._replace(code=-signal.SIGKILL)


def kill_guardian(guardian: int) -> None:
    """Send SIGKILL. Call it only while the link to the guardian is open: later its pid may be reused."""
    try:
        os.kill(guardian, signal.SIGKILL)
    except ProcessLookupError:
        pass


def kill_descendants() -> None:
    """Kill every descendant of this process, and return when none is left."""
    while descendants.reap()[2]:
        descendants.send(descendants.running(), [signal.SIGKILL])
        select.select((), (), (), _LOOK_AGAIN)


def dismiss(link: Link, guardian: int) -> None:
    """End the guardian, and the processes that it still guards. Returns when all have ended."""
    link.hang_up()
    until = clock.now() + _DISMISSED_WITHIN
    poll = select.poll()
    poll.register(link, select.POLLIN)
    while not link.ended and (left := until - clock.now()) > 0:
        poll.poll(left * 1000)
        link.receive()
    if not link.ended:  # frozen
        kill_guardian(guardian)
        kill_descendants()
    link.close()
    try:
        os.waitpid(guardian, 0)
    except ChildProcessError:
        pass  # reaped already
