"""The cluster's own map of itself, and every node on it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from redis.connection import SSLConnection

from holdfast.cli.doctor.concurrently import side_by_side
from holdfast.cli.doctor.connection import Line, Refused
from holdfast.cli.doctor.examine import examine
from holdfast.cli.doctor.facts import Cluster, Facts, Member, Node, Part, host_port
from holdfast.cli.doctor.servers import name_of
from holdfast.engines.base import RequestFailed
from holdfast.engines.redis.settings import Settings
from holdfast.errors import EngineRefused
from holdfast.options import ClientOptions


class Seed(NamedTuple):
    """A node named in the URL, and what it says."""

    server: Settings
    failure: str = ""
    refused: bool = False
    members: tuple[Member, ...] = ()
    state: str = ""
    withheld: str = ""

    @property
    def ids(self) -> set[str]:
        return {member.id for member in self.members}


def gather(servers: Sequence[Settings], options: ClientOptions) -> Facts:
    """Take the map of the seed that sees the most nodes, and examine all of those."""
    seeds = side_by_side(lambda server: _ask(server, options.request_timeout), servers)
    dead = tuple(
        Node(name_of(seed.server), failure=seed.failure, refused=seed.refused) for seed in seeds if seed.failure
    )
    living = [seed for seed in seeds if not seed.failure]
    if not living:
        return Facts("cluster", options, dead)
    first = max(living, key=lambda seed: len(seed.members))
    strangers = tuple(name_of(seed.server) for seed in living if not seed.ids & first.ids)
    cluster = Cluster(first.members, first.state, strangers, first.withheld)

    def examined(member: Member) -> Node:
        host, _, port = member.name.rpartition(":")
        part: Part = "replica" if member.master else "master"
        return examine(first.server.at(host.strip("[]"), int(port)), member.name, options, part, member.slots)

    present = [member for member in first.members if not member.flags & {"noaddr", "handshake"}]
    nodes = side_by_side(examined, present)
    known = {node.name for node in nodes}
    return Facts("cluster", options, (*nodes, *(node for node in dead if node.name not in known)), cluster=cluster)


def _ask(server: Settings, timeout: float) -> Seed:
    try:
        with Line(server, timeout) as line:
            return _view(line, server)
    except (Refused, EngineRefused) as error:
        return Seed(server, failure=str(error), refused=True)
    except RequestFailed as error:
        return Seed(server, failure=str(error))


def _view(line: Line, server: Settings) -> Seed:
    try:
        info = dict(row.partition(":")[::2] for row in line.ask("CLUSTER", "INFO").splitlines())
        rows = line.ask("CLUSTER", "NODES").splitlines()
    except Refused as refusal:
        if refusal.code != "NOPERM":
            raise
        # What the engine itself asks for: a user who may lock may ask this.
        return Seed(server, members=_from_slots(line.ask("CLUSTER", "SLOTS")), withheld=str(refusal))
    members = tuple(_member(row.split(), server) for row in rows if row)
    return Seed(server, members=members, state=info["cluster_state"])


def _from_slots(rows: Sequence[Any]) -> tuple[Member, ...]:
    """Rows of CLUSTER SLOTS: first and last slot, and who serves them: host, port, id, …; the master first."""
    members: dict[str, Member] = {}
    for first, last, (host, port, master, *_), *replicas in rows:
        known = members.get(master, Member(master, host_port(host, port), frozenset({"master"}), "", (), 0))
        members[master] = known._replace(slots=(*known.slots, (first, last)))
        members |= {
            replica: Member(replica, host_port(host, port), frozenset({"slave"}), master, (), 0)
            for host, port, replica, *_ in replicas
        }
    return tuple(members.values())


def _member(words: Sequence[str], server: Settings) -> Member:
    """A row of CLUSTER NODES: id, ip:port@bus[,hostname], flags, master, ping, pong, epoch, link, slots."""
    address, *more = words[1].split(",")
    host, _, port = address.partition("@")[0].rpartition(":")
    flags = frozenset(words[2].split(","))
    if "myself" in flags and not host:
        host = str(server.keywords.get("host", "localhost"))  # it may not know its own address yet
    if more and more[0] and issubclass(server.blocking_class, SSLConnection):
        host = more[0]  # the certificate is for a name
    slots, moving = _slots(words[8:])
    return Member(words[0], host_port(host, port), flags, words[3].strip("-"), slots, moving)


def _slots(words: Sequence[str]) -> tuple[tuple[tuple[int, int], ...], int]:
    """The ranges, such as ``0-5460`` or ``7``, and the number of those on the move, such as ``[93-<-id]``."""
    ranges = [word.partition("-") for word in words if not word.startswith("[")]
    slots = tuple((int(low), int(high or low)) for low, _, high in ranges)
    return slots, sum(word.startswith("[") for word in words)
