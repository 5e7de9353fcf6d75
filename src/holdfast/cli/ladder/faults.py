"""The seven faults. Each is a script for two or three clients. Every step waits for an event, never for a guessed time.

A is the client that the fault is aimed at; its lease is short. B and C are ordinary clients.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import Final, Protocol
from urllib.parse import urlsplit

from holdfast.cli.ladder.experiment import LONG, Experiment
from holdfast.cli.ladder.processes import STEP_TIMEOUT, Misplaced, Worker
from holdfast.cli.ladder.verdicts import Outcome
from holdfast.testing.proxy import FaultProxy

#: Lease of a client that will lose it. Short, since the run waits for it to expire.
LEASE: Final = 0.3
#: Lease of a client that renews it: long enough that a busy machine renews in time.
RENEWED: Final = 1.0
#: Sessions of ZooKeeper, and leases of holdfast. A request of holdfast may take a third of it.
SESSION: Final = 0.6
#: The first rung that renews its lease.
_RENEWS: Final = 6
#: How long a slow holder works, in leases.
_SLOW: Final = 1.5

#: Redlock's pause: the lease, the delay of each master's answer, and the longest pause.
PAUSED_LEASE: Final = 1.0
_ANSWER: Final = 0.2
_PAUSE: Final = 0.6
#: The session that the same pause is tested with.
_PAUSED_SESSION: Final = 2.0


class Failover(Protocol):
    """What a run of the failover does to its servers."""

    @property
    def what(self) -> str:
        """For the timeline."""

    def prepare(self) -> None:
        """Before the lock is taken."""

    def fail_over(self) -> list[str]:
        """The holder's server dies; the addresses from then on."""

    def clean_up(self) -> None:
        """After the run."""


def _lease(experiment: Experiment) -> float:
    return SESSION if experiment.rung.number >= 8 else LEASE


def crash_between(experiment: Experiment) -> Outcome:
    return _crash(experiment, "taken")


def crash_holding(experiment: Experiment) -> Outcome:
    return _crash(experiment, "read")


def _crash(experiment: Experiment, line: str) -> Outcome:
    a, b = experiment.client("A", _lease(experiment), stop=line), experiment.client("B")
    a.go()
    a.reach(line)
    experiment.kill(a)
    stuck = experiment.held_for_ever()
    b.go()
    if stuck:
        b.reach("busy")
    else:
        b.finish()
    return experiment.outcome(stuck=stuck)


def slow_holder(experiment: Experiment) -> Outcome:
    renews = experiment.rung.number >= _RENEWS
    lease = RENEWED if renews else LEASE
    a, b, c = experiment.client("A", lease, stop="read"), experiment.client("B", stop="read"), experiment.client("C")
    a.go()
    a.reach("read")
    work = _SLOW * lease if renews or experiment.held_for_ever() else STEP_TIMEOUT  # or until B gets in
    b.go()
    experiment.record(f"A works slowly; its lease is {lease:g} s")
    if b.reaches("read", within=work):
        experiment.record("A has finished its work")
        a.go()
        return _while_b_works(experiment, a, b, c)
    experiment.record(f"A has worked for {work:g} s")
    a.go()
    a.finish()
    return _in_turn(experiment, b, c)


def check_then_delete(experiment: Experiment) -> Outcome:
    a, b, c = (
        experiment.client("A", _lease(experiment), stop="delete"),
        experiment.client("B", stop="read"),
        experiment.client("C"),
    )
    a.go()
    a.reach("delete", "released")
    if "delete" not in a.steps:
        raise Misplaced  # its lease expired before it reached the release
    experiment.freeze(a)
    expires = not experiment.held_for_ever()
    b.go()
    b.reach("read" if expires else "busy")
    experiment.wake(a)
    if expires:
        return _while_b_works(experiment, a, b, c)
    a.finish()
    return _in_turn(experiment, b, c)


def _while_b_works(experiment: Experiment, a: Worker, b: Worker, c: Worker) -> Outcome:
    """A releases a lock that B holds by now; then C tries. B's lease is long: C acquires only if A deleted B's lock."""
    a.finish()
    began = time.monotonic()
    c.go()
    c.reach("busy", "acquired")
    deleted = "acquired" in c.steps
    if deleted and time.monotonic() - began > LONG / 2:
        raise Misplaced
    if deleted:
        experiment.record("B's lock was deleted by A")
        c.finish()
    b.go()
    b.finish()
    c.finish()
    return experiment.outcome(deleted=deleted)


def _in_turn(experiment: Experiment, b: Worker, c: Worker) -> Outcome:
    b.reach("read")
    c.go()
    c.reach("busy", "acquired")
    b.go()
    b.finish()
    c.finish()
    return experiment.outcome()


def freeze(experiment: Experiment) -> Outcome:
    a, b = experiment.client("A", _lease(experiment), stop="read"), experiment.client("B")
    a.go()
    a.reach("read")
    experiment.freeze(a)
    expires = not experiment.held_for_ever()
    b.go()
    if expires:
        b.finish()
    else:
        b.reach("busy")
    experiment.wake(a)
    a.finish()
    b.finish()
    return experiment.outcome()


def failover(experiment: Experiment, servers: Failover) -> Outcome:
    servers.prepare()
    lease = LONG if experiment.rung.number == 8 else RENEWED
    a = experiment.client("A", lease, stop="read")
    a.go()
    a.reach("read")
    after = servers.fail_over()
    experiment.record(servers.what)
    b = experiment.client("B", addresses=after)
    b.go()
    # A works for longer than one lease: its watchdog has to renew after the failover, too.
    b.reaches("released", within=_SLOW * RENEWED)
    a.go()
    a.reach("wrote", "refused")
    b.finish()
    return experiment.outcome()


def redlock_pause(experiment: Experiment) -> Outcome:
    if experiment.rung.number == 7:
        return _pause_of_redlock(experiment)
    if experiment.rung.number == 8:
        return _pause_of_session(experiment)
    return _pause(experiment, experiment.client("A", _lease(experiment), stop="checked"))


def _pause_of_redlock(experiment: Experiment) -> Outcome:
    with ExitStack() as exits:
        proxies = []
        for address in experiment.addresses:
            host, port = urlsplit(address).hostname, urlsplit(address).port
            assert host is not None
            assert port is not None
            proxies.append(exits.enter_context(FaultProxy(host, port)))
        a = experiment.client("A", PAUSED_LEASE, stop="checked", addresses=[proxy.url for proxy in proxies])
        for proxy in proxies:
            proxy.on("SET").delay(_ANSWER)
        experiment.record(f"each master takes {_ANSWER:g} s to answer; the lease is {PAUSED_LEASE:g} s")
        outcome = _pause(experiment, a, at_most=PAUSED_LEASE)
        a.end()  # before the proxies: the watchdog of A connects through them
        return outcome


def _pause(experiment: Experiment, a: Worker, *, at_most: float | None = None) -> Outcome:
    """A is stopped after its check until B works."""
    b = experiment.client("B", stop="read")
    a.go()
    a.reach("checked")
    experiment.freeze(a)
    began = time.monotonic()
    b.go()
    b.reach("read")
    if at_most is not None and time.monotonic() - began > at_most:
        raise Misplaced
    experiment.wake(a)
    a.reach("wrote", "refused")
    b.go()
    b.finish()
    return experiment.outcome()


def _pause_of_session(experiment: Experiment) -> Outcome:
    a, b = experiment.client("A", _PAUSED_SESSION, stop="checked"), experiment.client("B", stop="read")
    a.go()
    a.reach("checked")
    experiment.freeze(a)
    b.go()
    b.reaches("read", within=_PAUSE)
    experiment.wake(a)
    a.finish()
    b.reach("read")
    b.go()
    b.finish()
    return experiment.outcome()


#: The faults that need only clients. The failover also needs its servers.
SCRIPTS: Final[Mapping[str, Callable[[Experiment], Outcome]]] = {
    "crash-between": crash_between,
    "crash-holding": crash_holding,
    "slow-holder": slow_holder,
    "check-then-delete": check_then_delete,
    "freeze": freeze,
    "redlock-pause": redlock_pause,
}
