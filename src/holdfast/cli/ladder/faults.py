"""The seven faults. Each is a script for two or three clients; every step waits for an event, none for luck.

A is the client that the fault is aimed at; its lease is short. B and C are clients as any other.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import Final, Protocol
from urllib.parse import urlsplit

from holdfast.cli.ladder.experiment import LONG, Stage
from holdfast.cli.ladder.processes import PATIENCE, Misplaced, Worker
from holdfast.cli.ladder.verdicts import Outcome
from holdfast.testing.proxy import FaultProxy

#: Lease of a client that will lose it. Short, since the run waits for it to expire.
LEASE: Final = 0.3
#: Lease of a client that renews it in time, and so must be able to, on a busy machine too.
RENEWED: Final = 1.0
#: Sessions of ZooKeeper, and leases of holdfast, which gives a request a third of them: time enough for an answer.
SESSION: Final = 0.6
#: The first rung that renews its lease.
_RENEWS: Final = 6
#: How long a slow holder works, in leases.
_SLOW: Final = 1.5

#: Redlock's pause: the lease, how long each of the masters takes to answer, and how long the pause may be.
PAUSED_LEASE: Final = 1.0
_ANSWER: Final = 0.2
_PAUSE: Final = 0.6
#: The session that such a pause is held against.
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


def _lease(stage: Stage) -> float:
    return SESSION if stage.rung.number >= 8 else LEASE


def crash_between(stage: Stage) -> Outcome:
    return _crash(stage, "taken")


def crash_holding(stage: Stage) -> Outcome:
    return _crash(stage, "read")


def _crash(stage: Stage, line: str) -> Outcome:
    a, b = stage.client("A", _lease(stage), stop=line), stage.client("B")
    a.go()
    a.reach(line)
    stage.kill(a)
    stuck = stage.held_for_ever()
    b.go()
    if stuck:
        b.reach("busy")
    else:
        b.finish()
    return stage.outcome(stuck=stuck)


def slow_holder(stage: Stage) -> Outcome:
    renews = stage.rung.number >= _RENEWS
    lease = RENEWED if renews else LEASE
    a, b, c = stage.client("A", lease, stop="read"), stage.client("B", stop="read"), stage.client("C")
    a.go()
    a.reach("read")
    work = _SLOW * lease if renews or stage.held_for_ever() else PATIENCE  # or until B gets in
    b.go()
    stage.record(f"A works slowly; its lease is {lease:g} s")
    if b.reaches("read", within=work):
        stage.record("A has finished its work")
        a.go()
        return _while_b_works(stage, a, b, c)
    stage.record(f"A has worked for {work:g} s")
    a.go()
    a.finish()
    return _in_turn(stage, b, c)


def check_then_delete(stage: Stage) -> Outcome:
    a, b, c = stage.client("A", _lease(stage), stop="delete"), stage.client("B", stop="read"), stage.client("C")
    a.go()
    a.reach("delete", "released")
    if "delete" not in a.steps:
        raise Misplaced  # its lease expired before it came to releasing
    stage.freeze(a)
    expires = not stage.held_for_ever()
    b.go()
    b.reach("read" if expires else "busy")
    stage.wake(a)
    if expires:
        return _while_b_works(stage, a, b, c)
    a.finish()
    return _in_turn(stage, b, c)


def _while_b_works(stage: Stage, a: Worker, b: Worker, c: Worker) -> Outcome:
    """A gives back a lock that is B's by now; then C comes. B's lease is long: C gets in only if A deleted it."""
    a.finish()
    began = time.monotonic()
    c.go()
    c.reach("busy", "acquired")
    deleted = "acquired" in c.steps
    if deleted and time.monotonic() - began > LONG / 2:
        raise Misplaced
    if deleted:
        stage.record("B's lock was deleted by A")
        c.finish()
    b.go()
    b.finish()
    c.finish()
    return stage.outcome(deleted=deleted)


def _in_turn(stage: Stage, b: Worker, c: Worker) -> Outcome:
    b.reach("read")
    c.go()
    c.reach("busy", "acquired")
    b.go()
    b.finish()
    c.finish()
    return stage.outcome()


def freeze(stage: Stage) -> Outcome:
    a, b = stage.client("A", _lease(stage), stop="read"), stage.client("B")
    a.go()
    a.reach("read")
    stage.freeze(a)
    expires = not stage.held_for_ever()
    b.go()
    if expires:
        b.finish()
    else:
        b.reach("busy")
    stage.wake(a)
    a.finish()
    b.finish()
    return stage.outcome()


def failover(stage: Stage, servers: Failover) -> Outcome:
    servers.prepare()
    lease = LONG if stage.rung.number == 8 else RENEWED
    a = stage.client("A", lease, stop="read")
    a.go()
    a.reach("read")
    after = servers.fail_over()
    stage.record(servers.what)
    b = stage.client("B", addresses=after)
    b.go()
    # A works on, for longer than one lease: its watchdog has to renew after the failover, too.
    b.reaches("released", within=_SLOW * RENEWED)
    a.go()
    a.reach("wrote", "refused")
    b.finish()
    return stage.outcome()


def redlock_pause(stage: Stage) -> Outcome:
    if stage.rung.number == 7:
        return _pause_of_redlock(stage)
    if stage.rung.number == 8:
        return _pause_of_session(stage)
    return _pause(stage, stage.client("A", _lease(stage), stop="checked"))


def _pause_of_redlock(stage: Stage) -> Outcome:
    with ExitStack() as exits:
        proxies = []
        for address in stage.addresses:
            host, port = urlsplit(address).hostname, urlsplit(address).port
            assert host is not None
            assert port is not None
            proxies.append(exits.enter_context(FaultProxy(host, port)))
        a = stage.client("A", PAUSED_LEASE, stop="checked", addresses=[proxy.url for proxy in proxies])
        for proxy in proxies:
            proxy.on("SET").delay(_ANSWER)
        stage.record(f"each master takes {_ANSWER:g} s to answer; the lease is {PAUSED_LEASE:g} s")
        outcome = _pause(stage, a, at_most=PAUSED_LEASE)
        a.end()  # before the proxies: the watchdog of A connects through them
        return outcome


def _pause(stage: Stage, a: Worker, *, at_most: float | None = None) -> Outcome:
    """A is stopped after its check until B works."""
    b = stage.client("B", stop="read")
    a.go()
    a.reach("checked")
    stage.freeze(a)
    began = time.monotonic()
    b.go()
    b.reach("read")
    if at_most is not None and time.monotonic() - began > at_most:
        raise Misplaced
    stage.wake(a)
    a.reach("wrote", "refused")
    b.go()
    b.finish()
    return stage.outcome()


def _pause_of_session(stage: Stage) -> Outcome:
    a, b = stage.client("A", _PAUSED_SESSION, stop="checked"), stage.client("B", stop="read")
    a.go()
    a.reach("checked")
    stage.freeze(a)
    b.go()
    b.reaches("read", within=_PAUSE)
    stage.wake(a)
    a.finish()
    b.reach("read")
    b.go()
    b.finish()
    return stage.outcome()


#: Those that need nothing but clients; the failover needs its servers too.
SCRIPTS: Final[Mapping[str, Callable[[Stage], Outcome]]] = {
    "crash-between": crash_between,
    "crash-holding": crash_holding,
    "slow-holder": slow_holder,
    "check-then-delete": check_then_delete,
    "freeze": freeze,
    "redlock-pause": redlock_pause,
}
