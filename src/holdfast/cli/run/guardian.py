"""The guardian: starts the command, and kills it with all its descendants when the lock ends or the runner dies.

It has one thread, no connection to the lock engine, and all signals blocked except SIGCHLD. It is in a process group of
its own, so that a signal to the runner's group does not reach it.
"""

from __future__ import annotations

import fcntl
import os
import select
import signal
from collections.abc import Iterable, Mapping
from typing import Final, NoReturn

from holdfast._runtime import clock
from holdfast.cli.run import descendants, kernel, schedule
from holdfast.cli.run.launcher import Launch, Program, launch
from holdfast.cli.run.link import Link, Message
from holdfast.cli.run.schedule import Plan, Step
from holdfast.cli.run.terminal import Terminal

#: A wait does not count system suspend: the clock is read at least this often.
_LONGEST_WAIT: Final = 0.5
#: Seconds between two searches for remaining descendants.
_LOOK_AGAIN: Final = 0.01
#: The same if one of them cannot be killed, and may run for a long time.
_LOOK_AT_OTHERS: Final = 0.2
_JOB_CONTROL: Final = frozenset({signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU})
_SIGNALS: Final[Mapping[Step, tuple[int, ...]]] = {
    # A stopped process acts on SIGTERM only when it is continued.
    Step.TERM: (signal.SIGTERM, signal.SIGCONT),
    Step.KILL: (signal.SIGKILL,),
}


def fork_guardian(program: Program, environment: Mapping[str, str], unwanted: Iterable[int]) -> tuple[Link, int]:
    """Fork the guardian, while this process has one thread. Returns the runner's end of the link, and the pid.

    ``unwanted``: descriptors that the guardian closes. It ends when the runner's end of the link is closed.
    """
    # Before the fork, never beside the guardian's own call: the kernel also writes to each descendant that was not born
    # below a subreaper, in the word that the descendant's call writes, and without a lock. One of both could be lost.
    kernel.adopt_orphans()
    ours, theirs = Link.pair()
    runner_group = os.getpgrp()
    # No signal may act in the child before it has blocked them: it would run the runner's handlers.
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    try:
        pid = os.fork()
        if pid == 0:
            try:
                ours.close()
                for descriptor in unwanted:
                    os.close(descriptor)
                Guardian(theirs, program, environment, runner_group).run()
            finally:
                os._exit(0)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    theirs.close()
    return ours, pid


class Guardian:
    """One run of one command."""

    def __init__(self, link: Link, program: Program, environment: Mapping[str, str], runner_group: int) -> None:
        self._link = link
        self._program = program
        self._environment = dict(environment)
        self._home = runner_group
        self._terminal: Terminal | None = None
        self._plan = Plan(0.0, 0.0)
        self._grace = 0.0
        self._taken = Step.NOTHING
        self._launch: Launch | None = None
        self._executed = False
        self._refused = False  # some descendant cannot be killed: it is another user's
        self._over = False  # the command has ended; descendants may still run
        self._wake: tuple[int, int] = (-1, -1)

    def run(self) -> NoReturn:
        """Run until no process is left to watch. No descendant outlives this, even after an error."""
        try:
            self._prepare()
            wait: float | None = None
            while not self._link.ended and not self._done():
                self._wait(wait)
                # Before any decision: if this process was frozen, newer deadlines may have arrived meanwhile.
                for message in self._link.receive():
                    self._handle(message)
                wait = self._act()
        finally:
            # The command has ended, the runner is dead, or this is a bug: the lock is no longer renewed.
            self._kill_all()
            self._return_terminal(restore=True)
            os._exit(0)

    def _prepare(self) -> None:
        os.setpgid(0, 0)
        reading, writing = os.pipe()
        os.set_blocking(reading, False)
        os.set_blocking(writing, False)
        self._wake = (reading, writing)
        signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD})
        kernel.adopt_orphans()
        kernel.set_name(b"holdfast-guard")
        self._terminal = Terminal.open(self._home)

    # -- waiting -----------------------------------------------------------------------------------------------------

    def _wait(self, seconds: float | None) -> None:
        poll = select.poll()
        poll.register(self._link, self._link.events)
        if self._launch is not None and not self._executed:
            poll.register(self._launch.reading, select.POLLIN)
        self._wait_with(poll, seconds)

    def _wait_with(self, poll: select.poll, seconds: float | None) -> None:
        """Wait for what is registered in ``poll``, and for SIGCHLD.

        Not with select(2), which refuses descriptors above 1023: the runner may have inherited many.
        """
        poll.register(self._wake[0], select.POLLIN)
        poll.poll(None if seconds is None else max(0.0, seconds) * 1000)
        try:
            os.read(self._wake[0], 4096)
        except BlockingIOError:
            pass

    def _act(self) -> float | None:
        """Take the step that is due, if any. Returns how long to wait afterwards; None: until the next message."""
        if self._launch is None:
            return None
        self._look_at_exec()
        now = clock.now()
        step, again = schedule.decide(self._plan, now)
        if step > self._taken:
            self._taken = step
            if not self._over:
                self._link.send("step", step=int(step))
            self._signal_all(step)
        if self._taken is Step.KILL:
            self._signal_all(Step.KILL)  # again, for processes that were forked meanwhile
            return _LOOK_AT_OTHERS if self._refused else _LOOK_AGAIN
        return min(_LONGEST_WAIT, again - now)

    def _done(self) -> bool:
        """Reap ended processes. True when the command and all its descendants have ended."""
        ended, stopped, any_left = descendants.reap()
        launch = self._launch
        if launch is None:
            return False
        if launch.pid in ended and not self._over:
            self._look_at_exec()
            self._ended(ended[launch.pid])
        if launch.pid in stopped:
            self._stopped(launch.pid, stopped[launch.pid])
        if self._over and not any_left:
            self._link.send("clear")
            return True
        return False

    # -- the command -------------------------------------------------------------------------------------------------

    def _handle(self, message: Message) -> None:
        kind = message["kind"]
        if kind == "start":
            self._start(message)
        elif kind == "deadline":
            self._plan = schedule.renewed(self._plan, message["deadline"], self._grace, self._taken)
        elif kind == "lost":
            self._plan = schedule.lost(self._plan, message["reason"], clock.now())
        elif kind == "signal":
            self._signal_group(message["number"])
        elif kind == "continue":
            self._continue()

    def _start(self, message: Message) -> None:
        self._grace = message["grace"]
        self._plan = schedule.until(message["deadline"], self._grace)
        if schedule.decide(self._plan, clock.now())[0] is not Step.NOTHING:
            self._link.send("late")  # this process was paused after the grant: the lock may have expired
            return
        liveness = None
        if self._link.descriptors:
            # Never 0, 1 or 2, even if they are closed: the command would use it as its input or output.
            liveness = fcntl.fcntl(self._link.descriptors[0], fcntl.F_DUPFD_CLOEXEC, 3)
        if self._terminal is not None:
            self._terminal.remember()
        environment = self._environment | message["environment"]
        try:
            self._launch = launch(self._program, environment, liveness, self._terminal)
        except OSError as error:  # the system has no process or descriptor left
            self._link.send("failed", errno=error.errno)
            return
        self._link.send("started", pid=self._launch.pid)

    def _look_at_exec(self) -> None:
        """Report a failed exec. Does not wait for the exec: on a network file system it may take long."""
        if self._launch is None or self._executed:
            return
        poll = select.poll()
        poll.register(self._launch.reading, select.POLLIN)
        if poll.poll(0):
            failure = os.read(self._launch.reading, 16)
            os.close(self._launch.reading)
            self._executed = True
            if failure:
                self._link.send("failed", errno=int(failure))

    def _ended(self, status: int) -> None:
        self._over = True
        code = os.waitstatus_to_exitcode(status)
        self._return_terminal(restore=code < 0)
        self._link.send("ended", code=code)
        self._plan = schedule.ended(self._plan, self._grace, clock.now())

    def _stopped(self, pid: int, number: int) -> None:
        """The command was stopped. If by job control, stop the runner's job too, or continue the command."""
        if self._taken is not Step.NOTHING:
            self._signal_group(signal.SIGCONT)
        elif self._terminal is None or number not in _JOB_CONTROL:
            return  # SIGSTOP, or no terminal: probably an operator, who examines it. The lock stays held.
        elif number != signal.SIGTSTP and self._terminal.give(pid):
            self._signal_group(signal.SIGCONT)  # it needed the terminal, which the job has
            self._terminal.wanted = True
        else:
            self._terminal.take_back(pid, restore=False)
            self._link.send("stopped", number=number)

    def _continue(self) -> None:
        """The runner's job was continued. The runner has checked its lease before it sent this."""
        if self._launch is None or self._over:
            return
        if schedule.decide(self._plan, clock.now())[0] is Step.KILL:
            return  # it will be killed without being continued
        if self._terminal is not None and self._terminal.wanted:
            self._terminal.give(self._launch.pid)
        self._signal_group(signal.SIGCONT)

    def _return_terminal(self, *, restore: bool) -> None:
        if self._terminal is not None and self._launch is not None:
            self._terminal.take_back(self._launch.pid, restore=restore)

    # -- signals -----------------------------------------------------------------------------------------------------

    def _signal_group(self, number: int) -> None:
        # Not after the command was reaped: its pid may be reused by another group.
        if self._launch is not None and not self._over:
            try:
                os.killpg(self._launch.pid, number)
            except (ProcessLookupError, PermissionError):
                pass  # it has ended, or all of its processes belong to another user

    def _signal_all(self, step: Step) -> None:
        for number in _SIGNALS[step]:
            self._signal_group(number)
        found = descendants.running()
        if self._launch is not None and step is Step.TERM and not self._over:
            # Processes of the group have received it already. Some programs treat a second SIGTERM as "exit now".
            group = self._launch.pid
            found = [process for process in found if _group_of(process.pid) != group]
        refused = descendants.send(found, _SIGNALS[step])
        if refused and step is Step.KILL and not self._refused:
            self._refused = True
            self._link.send("refused", pids=[process.pid for process in refused])

    def _kill_all(self) -> None:
        """Kill every descendant, and return when none is left."""
        while True:
            ended, _, any_left = descendants.reap()
            self._over = self._over or (self._launch is not None and self._launch.pid in ended)
            if not any_left:
                return
            self._signal_all(Step.KILL)
            self._wait_with(select.poll(), _LOOK_AT_OTHERS if self._refused else _LOOK_AGAIN)


def _group_of(pid: int) -> int | None:
    try:
        return os.getpgid(pid)
    except OSError:
        return None
