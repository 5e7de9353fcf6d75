"""Three ZooKeeper servers that elect a leader, with a relay between each two of them that can become a black hole."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable, Iterable, Sequence
from itertools import permutations
from typing import Any, Final

from kazoo.client import KazooClient

from tests.servers.group import READY_WITHIN, Group, wait_until
from tests.servers.loop_thread import LoopThread
from tests.servers.ports import free_port
from tests.servers.process import start_all
from tests.servers.relay import Passage, Relay
from tests.servers.zookeeper import BASE, ZooKeeperServer

_MEMBERS: Final = 3
# A follower knows the leader a moment before the leader listens. It retries to connect, so the relay must, too.
_RETRY_FOR: Final = 2.0

_LONG: Final = struct.Struct(">q")
_INT: Final = struct.Struct(">i")


class Introduction(Passage):
    """A connection to an election port. A member introduces itself with its own address, to which the receiver would
    connect past all relays. So the introduction is reduced to its older form, the number alone: the receiver then takes
    the address from its configuration.
    """

    async def upstream(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        number = await source.readexactly(_LONG.size)
        if _LONG.unpack(number)[0] < 0:  # a version; the number and the addresses follow
            number = await source.readexactly(_LONG.size)
            (length,) = _INT.unpack(await source.readexactly(_INT.size))
            await source.readexactly(length)
        await self.pass_on(number, sink)
        await super().upstream(source, sink)


class ElectionRelay(Relay):
    def _passage(self, client_in: asyncio.StreamReader, client_out: asyncio.StreamWriter) -> Passage:
        return Introduction(self, client_in, client_out)


class Member(ZooKeeperServer):
    """One server of an ensemble. It is connected to the others through relays only."""

    def __init__(self, number: int, *config: str, peers: Callable[[Member], list[str]], **settings: Any) -> None:
        super().__init__(*config, **settings)
        self.number = number
        self.quorum_port = 0
        self.election_port = 0
        self._peers = peers

    def _choose_ports(self) -> None:
        super()._choose_ports()
        self.quorum_port, self.election_port = free_port(), free_port()

    def _ports(self) -> list[int]:
        return [*super()._ports(), self.quorum_port, self.election_port]

    def _lines(self) -> list[str]:
        data = self.directory / "data"
        data.mkdir(exist_ok=True)
        (data / "myid").write_text(f"{self.number}\n", "ascii")
        own = f"server.{self.number}={self.host}:{self.quorum_port}:{self.election_port}"
        return [*super()._lines(), own, *self._peers(self)]


class Ensemble(Group[Member]):
    """``with Ensemble() as ensemble:``; each argument is a line of zoo.cfg for all members.

    With ticks of 0.1 s and ``sync_limit`` 10: a follower that receives nothing from its leader, or a leader that
    receives nothing from its majority, gives up and disconnects its clients after 1 s. On an idle machine all are
    ready after 2 s, a killed leader is replaced after 0.4 s, a restarted member is ready after 1.5 s, and one that was
    cut off 0.1 s after ``heal``.
    """

    def __init__(self, *config: str, tick: float = 0.1, sync_limit: int = 10, jvm: Sequence[str] = ()) -> None:
        limits = ("initLimit=50", f"syncLimit={sync_limit}")
        # Otherwise a member without a majority sends notifications less and less often, down to once a minute.
        notifications = "-Dzookeeper.fastleader.maxNotificationInterval=400"
        self.tick = tick
        super().__init__(
            [
                Member(number, *limits, *config, peers=self._peers_of, tick=tick, jvm=(notifications, *jvm))
                for number in range(1, _MEMBERS + 1)
            ]
        )
        self._loop = LoopThread("ensemble-relays")
        # For each pair (connecting, target): the relays to the quorum and election port of the target.
        self._relays = {pair: self._make_relays(pair[1]) for pair in permutations(self.members, 2)}

    # ---- life cycle

    def close(self) -> None:
        """End all members and remove their directories."""
        super().close()
        for relay in self._all_relays():
            relay.close()
        self._loop.close()

    # ---- facts

    @property
    def members(self) -> list[Member]:
        return self.servers

    @property
    def hosts(self) -> str:
        return ",".join(member.address for member in self.members)

    @property
    def url(self) -> str:
        return f"zookeeper://{self.hosts}{BASE}?tick={self.tick}"

    def client(self, **settings: Any) -> KazooClient:
        """A plain client of all three, for arranging and asserting. The ensemble closes it."""
        return self.members[0].client(self.hosts, **settings)

    def close_clients(self) -> None:
        for member in self.members:
            member.close_clients()

    def leader(self) -> Member:
        """The leader; there has to be one."""
        return next(member for member in self.members if member.mode() == "leader")

    def followers(self) -> list[Member]:
        return [member for member in self.members if member.mode() == "follower"]

    def wait_until_complete(self, within: float = READY_WITHIN) -> None:
        """Wait until one member leads and all others follow."""
        expected = ["follower"] * (_MEMBERS - 1) + ["leader"]
        self._wait(lambda modes: sorted(map(str, modes)) == expected, within, "one leads and all others follow")

    def wait_for_leader(self, within: float = READY_WITHIN) -> Member:
        """Wait until a majority serves; return its leader."""
        self._wait(lambda modes: "leader" in modes and "follower" in modes, within, "a majority serves")
        return self.leader()

    def wait_until_silent(self, *members: Member, within: float = READY_WITHIN) -> None:
        """Wait until these members serve no client: they have detected that they have no majority."""
        self._wait(lambda _: not any(member.mode() for member in members), within, "none of them serves")

    # ---- faults

    def kill(self, *members: Member) -> None:
        """SIGKILL."""
        for member in members:
            member.kill()

    def restart(self, *members: Member) -> None:
        """Restart these members in parallel with their data; wait until all three serve."""
        for member in members:
            member.respawn()
        self.wait_until_complete()

    def cut(self, one: Member, other: Member) -> None:
        """From now on nothing passes between these two, in either direction. They are not notified; clients reach both.

        It lasts until ``heal``.
        """
        for pair in ((one, other), (other, one)):
            for relay in self._relays[pair]:
                relay.black_hole_all()

    def cut_off(self, member: Member) -> None:
        """Cut it off from all others. It answers the pings of its clients until it detects the cut, after syncLimit."""
        for other in self.members:
            if other is not member:
                self.cut(member, other)

    def heal(self) -> None:
        """All links pass data again, including the data held back; does not wait."""
        for relay in self._all_relays():
            relay.heal()

    def resume(self) -> None:
        """Continue the frozen members."""
        for member in self.members:
            if member.running and not member.answering:
                member.resume()

    def recover(self) -> None:
        """Undo all of the above, and wait until all three serve."""
        self.heal()
        self.resume()
        self.restart(*(member for member in self.members if not member.running))

    def flush(self) -> None:
        """Delete all nodes. Sessions remain, without their nodes."""
        self.leader().flush()

    # ---- internals

    def _make_relays(self, target: Member) -> tuple[Relay, Relay]:
        return (
            Relay(self._loop, lambda: (target.host, target.quorum_port), retry_for=_RETRY_FOR),
            ElectionRelay(self._loop, lambda: (target.host, target.election_port)),
        )

    def _all_relays(self) -> Iterable[Relay]:
        return (relay for pair in self._relays.values() for relay in pair)

    def _peers_of(self, member: Member) -> list[str]:
        links = ((other.number, *self._relays[member, other]) for other in self.members if other is not member)
        return [f"server.{number}={quorum.address}:{election.port}" for number, quorum, election in links]

    def _start(self) -> None:
        for relay in self._all_relays():
            relay.start()
        start_all(self.members)
        self.wait_until_complete()

    def _wait(self, what: Callable[[list[str | None]], bool], within: float, event: str) -> None:
        wait_until(lambda: what([member.mode() for member in self.members]), within, event)
