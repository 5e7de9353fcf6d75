"""The rungs, the faults, and the expected result of each fault on each rung. No I/O.

``EXPECTED`` is the promise: the command and the tests compare runs with it, and the page in the docs shows it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple

Kind = Literal["ok", "lost", "deleted", "stuck"]
#: Where a rung runs: its lock servers. ``embedded`` (SQLite) stands in for Redis where rung 9 can do without.
Place = Literal["redis", "replicated", "masters", "zookeeper", "embedded"]


@dataclass(frozen=True)
class Rung:
    number: int
    title: str  #: short enough for a row of the matrix
    module: str  #: in ``holdfast.cli.ladder.rungs``
    breaks_at: str | None  #: the fault that the next rung fixes
    problem: str  #: what is wrong with it


@dataclass(frozen=True)
class Fault:
    name: str
    heading: tuple[str, str]  #: two lines of a column of the matrix
    what: str


RUNGS: Final[Sequence[Rung]] = (
    Rung(1, "SETNX", "rung1_setnx", "crash-holding", "The holder dies: locked for ever."),
    Rung(2, "SETNX, EXPIRE", "rung2_expire", "crash-between", "The holder dies between the two: locked for ever."),
    Rung(
        3,
        "SET NX PX",
        "rung3_set_nx_px",
        "slow-holder",
        "A slow holder outlives its lease, and its release then deletes the lock of another client.",
    ),
    Rung(
        4,
        "own value",
        "rung4_own_value",
        "check-then-delete",
        "GET and DEL are two commands: between them the lock may change hands, and is deleted all the same.",
    ),
    Rung(
        5,
        "Lua release",
        "rung5_lua",
        "slow-holder",
        "Releasing is safe now, but the lease still expires under slow work: two clients work at once.",
    ),
    Rung(
        6,
        "watchdog",
        "rung6_watchdog",
        "failover",
        "Replication is asynchronous: the master dies before the lock reaches the replica, which grants it again.",
    ),
    Rung(
        7,
        "Redlock",
        "rung7_redlock",
        "redlock-pause",
        "The time that is left is checked once. Slow masters use most of it up; a short pause after the check uses the "
        "rest, and the client starts to work without a lock.",
    ),
    Rung(
        8,
        "session",
        "rung8_session",
        "freeze",
        "The store is consistent, but it cannot stop a client: one that was frozen past its session resumes and "
        "writes.",
    ),
    Rung(
        9,
        "fencing token",
        "rung9_fence",
        None,
        "None of these faults costs an update. The fence refuses a late write; the client that is refused must know "
        "what to do about it.",
    ),
)

FAULTS: Final[Sequence[Fault]] = (
    Fault(
        "crash-between",
        ("crash", "between"),
        "The holder is killed right after the first command of its acquire has run on the server.",
    ),
    Fault("crash-holding", ("crash", "holding"), "The holder is killed between its read and its write."),
    Fault(
        "slow-holder",
        ("slow", "holder"),
        "The holder is alive, and works for longer than one lease between its read and its write.",
    ),
    Fault(
        "check-then-delete",
        ("check,", "delete"),
        "The holder is stopped right before the command that gives the lock back, until another client has the lock.",
    ),
    Fault(
        "freeze",
        ("freeze", ""),
        "The whole process of the holder is stopped between its read and its write, for longer than its lease or "
        "session, then resumes and writes.",
    ),
    Fault(
        "failover",
        ("fail-", "over"),
        "The holder's master dies before the lock is replicated, and the replica becomes the master. Of Redlock's "
        "masters, one comes back empty; of ZooKeeper's servers, the leader dies.",
    ),
    Fault(
        "redlock-pause",
        ("Redlock", "pause"),
        "Redlock's masters answer slowly, which uses up most of its lease (1 s); then the holder is stopped right "
        "after its last check, for less than one lease. Rung 8 has the same pause: its session (2 s) is kept alive by "
        "its own heartbeat. Rung 9 is stopped until another client has the lock.",
    ),
)

#: In the order of ``FAULTS``; None: the fault does not apply.
EXPECTED: Final[Mapping[int, Sequence[Kind | None]]] = {
    1: ("stuck", "stuck", "ok", "ok", "ok", "lost", None),
    2: ("stuck", "ok", "deleted", "deleted", "lost", "lost", None),
    3: ("ok", "ok", "deleted", "deleted", "lost", "lost", None),
    4: ("ok", "ok", "lost", "deleted", "lost", "lost", None),
    5: ("ok", "ok", "lost", "ok", "lost", "lost", None),
    6: ("ok", "ok", "ok", "ok", "lost", "lost", None),
    7: ("ok", "ok", "ok", "ok", "lost", "ok", "lost"),
    8: ("ok", "ok", "ok", "ok", "lost", "ok", "ok"),
    9: ("ok", "ok", "ok", "ok", "ok", "ok", "ok"),
}
NOT_APPLICABLE: Final = "–"
LEGEND: Final = (
    "lost k/n: k of n updates lost   *: a release deleted another client's lock\n"
    "stuck: locked for ever          –: does not apply: no check to be late for"
)


class Event(NamedTuple):
    """One line of a timeline."""

    seconds: float  #: since the run began
    actor: str
    text: str


@dataclass(frozen=True)
class Outcome:
    """The result of one run of one cell. An update counts if its write succeeded from its client's point of view."""

    updates: int
    lost: int
    stuck: bool = False
    deleted: bool = False  #: a release deleted another client's lock
    refused: int = 0  #: late writes that a fence refused
    timeline: Sequence[Event] = ()

    @property
    def kind(self) -> Kind:
        if self.stuck:
            return "stuck"
        if self.deleted:
            return "deleted"
        return "lost" if self.lost else "ok"

    @property
    def text(self) -> str:
        """At most nine characters."""
        if self.kind in ("ok", "stuck"):
            return self.kind
        return f"lost {self.lost}/{self.updates}{'*' if self.deleted else ''}"


@dataclass(frozen=True)
class Cell:
    """One fault against one rung: its runs, or why there were none."""

    rung: Rung
    fault: Fault
    outcomes: Sequence[Outcome] = ()
    missing: str = ""  #: what this machine lacks

    @property
    def expected(self) -> Kind | None:
        return expected(self.rung, self.fault)

    @property
    def broken_promises(self) -> int:
        """How many runs had another result than expected; 0 for a cell that could not run."""
        return sum(outcome.kind != self.expected for outcome in self.outcomes)

    @property
    def text(self) -> str:
        """The text in the matrix: the result if all runs agree on it. An unexpected result is marked with ``!``."""
        if self.expected is None:
            return NOT_APPLICABLE
        if not self.outcomes:
            return "needs…" if self.missing else ""
        texts = {outcome.text for outcome in self.outcomes}
        text = texts.pop() if len(texts) == 1 else "mixed"
        return f"{text}!" if self.broken_promises else text

    @property
    def good(self) -> bool:
        return bool(self.outcomes) and all(outcome.kind == "ok" for outcome in self.outcomes)


def expected(rung: Rung, fault: Fault) -> Kind | None:
    return EXPECTED[rung.number][FAULTS.index(fault)]


def fault_named(name: str) -> Fault:
    return next(fault for fault in FAULTS if fault.name == name)


def place_of(rung: Rung, fault: Fault, *, with_redis: bool = True) -> Place:
    """The servers that a cell needs."""
    if rung.number == 8:
        return "zookeeper"
    if rung.number == 7 or fault.name == "redlock-pause":
        return "masters"
    if fault.name == "failover":
        return "replicated"
    return "redis" if with_redis or rung.number != 9 else "embedded"


def as_promised(cells: Iterable[Cell]) -> bool:
    return not any(cell.broken_promises for cell in cells)
