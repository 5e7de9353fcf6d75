"""The facts about the servers. Data only: ``topology`` gathers them, ``checks`` judges them."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, NamedTuple

from holdfast._config.options import ClientOptions

#: The part of a node according to the URL or the discovery. ``Node.role`` is what the node itself reports.
Part = Literal["server", "master", "replica", "redlock"]
#: How waiters are woken, as the engine itself finds out (holdfast.engines.redis.waiting.watch.Way).
Way = Literal["tracking", "channel", "polling"]
#: If ``Node.withheld`` has this question, it is unknown which rights the user lacks.
RIGHTS: Final = "ACL DRYRUN"


class Purpose(enum.Enum):
    """What a right is needed for."""

    LOCKS = enum.auto()
    WAITING = enum.auto()
    INSPECTING = enum.auto()
    PUSHES = enum.auto()  #: client tracking
    CHANNEL = enum.auto()  #: pub/sub
    HAND_OVER = enum.auto()  #: of a lock to the first waiter, by its release
    LISTING = enum.auto()  #: locks(), and naming the type of a foreign key
    REGISTERS = enum.auto()  #: conditions, monitors, latches, barriers
    SHARED = enum.auto()  #: read-write locks and semaphores
    FURTHER_CHANNELS = enum.auto()  #: of read-write locks, semaphores and registers
    REPLICAS = enum.auto()  #: WAIT


class Lack(NamedTuple):
    """A right that the user does not have: ``right`` is written as ACL SETUSER takes it."""

    purpose: Purpose
    right: str


class Clock(NamedTuple):
    """A server's clock minus this host's, in seconds; the true value is within ``uncertainty`` of it."""

    offset: float
    uncertainty: float


class Replica(NamedTuple):
    """A replica, as its master sees it."""

    name: str
    state: str
    behind: int  #: bytes of the replication stream not acknowledged yet
    lag: int  #: seconds since its last acknowledgement


@dataclass(frozen=True, slots=True)
class Node:
    """One data server. Facts that it did not report are absent, and ``withheld`` says why."""

    name: str
    part: Part = "server"
    failure: str = ""  #: why it could not be examined; then the rest is empty
    refused: bool = False  #: the failure is a refusal (password, certificate), not a missing answer
    info: Mapping[str, str] = field(default_factory=dict)
    config: Mapping[str, str] = field(default_factory=dict)
    withheld: Mapping[str, str] = field(default_factory=dict)  #: question -> why it was not answered
    clock: Clock | None = None
    script_seconds: float | None = None  #: one round trip of the smallest script; None: scripts do not run
    script_error: str = ""
    write_error: str = ""  #: the server's error when a small key was written
    way: Way | None = None
    lacks: tuple[Lack, ...] = ()

    @property
    def role(self) -> str:
        """``master`` or ``slave``, as the node itself reports; empty if unknown."""
        return self.info.get("role", "")

    def number(self, name: str) -> int | None:
        """A number from INFO, or from CONFIG."""
        text = self.info.get(name, self.config.get(name, ""))
        return int(text) if text.lstrip("-").isdecimal() else None

    @property
    def replicas(self) -> tuple[Replica, ...]:
        """Its replicas, from lines such as ``slave0:ip=10.0.0.2,port=6379,state=online,offset=42,lag=0``."""
        offset = self.number("master_repl_offset") or 0
        return tuple(
            _replica(value, offset)
            for name, value in self.info.items()
            if name.startswith("slave") and name[5:].isdecimal()
        )


def _replica(text: str, offset: int) -> Replica:
    fields = dict(part.partition("=")[::2] for part in text.split(","))
    numbers = {name: int(fields[name]) if fields.get(name, "").isdecimal() else 0 for name in ("offset", "lag")}
    name = host_port(fields.get("ip", "?"), fields.get("port", "?"))
    return Replica(name, fields.get("state", "?"), max(0, offset - numbers["offset"]), numbers["lag"])


@dataclass(frozen=True, slots=True)
class Sentinel:
    """One Sentinel's view of the master. ``failure``: it did not answer, or does not know that master."""

    name: str
    failure: str = ""
    master: str = ""  #: host:port
    flags: frozenset[str] = frozenset()
    quorum: int = 0
    sentinels: int = 0  #: that it knows of, itself included
    replicas: int = 0
    ckquorum: str = ""  #: its own verdict, if that is bad
    withheld: str = ""  #: why it reported only the master's address


@dataclass(frozen=True, slots=True)
class Cluster:
    """The cluster, as one of its nodes sees it."""

    members: tuple[Member, ...]
    state: str = ""  #: empty: unknown
    strangers: tuple[str, ...] = ()  #: seeds of the URL that belong to another cluster, or to none
    withheld: str = ""  #: why it reported only its slots


class Member(NamedTuple):
    """A node of the cluster. ``master`` is the id of the one that it replicates."""

    id: str
    name: str
    flags: frozenset[str]
    master: str
    slots: tuple[tuple[int, int], ...]
    moving: int  #: slots that it is handing over or receiving


@dataclass(frozen=True, slots=True)
class Facts:
    """Everything that is known."""

    engine: str
    options: ClientOptions
    nodes: tuple[Node, ...] = ()
    sentinels: tuple[Sentinel, ...] = ()
    cluster: Cluster | None = None

    @property
    def alive(self) -> tuple[Node, ...]:
        return tuple(node for node in self.nodes if not node.failure)


def host_port(host: object, port: object) -> str:
    return f"[{host}]:{port}" if ":" in str(host) else f"{host}:{port}"
