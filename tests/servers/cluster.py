"""A Redis Cluster of three masters with a replica each, whose slots can be migrated, completely or partly."""

from __future__ import annotations

import re
import secrets
from typing import Any, Final, TypeAlias

from redis.crc import REDIS_CLUSTER_HASH_SLOTS, key_slot

from tests.servers.group import READY_WITHIN, Group, wait_until
from tests.servers.ports import PORTS, is_free
from tests.servers.process import ServerFailed, start_all
from tests.servers.redis import RedisServer
from tests.servers.replication import QUICK, is_linked

FAILOVER_WITHIN: Final = 20.0
_MASTERS: Final = 3
# The node timeout until all nodes have met, in seconds. A handshake that takes longer is given up and not repeated,
# and the scheduler may stall.
_MEETING_TIMEOUT: Final = 15.0
# The node timeout until all nodes know that they are ready: nodes exchange messages twice in that time.
_READY_TIMEOUT: Final = 1.0
_MIGRATE_DEADLINE_MS: Final = 5_000
_MANY: Final = 1_000
_GOSSIP_WITHIN: Final = 10.0

# Nodes connect to each other on their port + 10000.
_BUS: Final = 10_000
_CLUSTER_PORTS: Final = range(PORTS.start, PORTS.stop - _BUS)

#: For each range of slots the port of its master, then those of the replicas.
SlotMap: TypeAlias = dict[range, tuple[int, ...]]


class ClusterNode(RedisServer):
    """One node, separate until ``RedisCluster`` connects it with others. After a restart it rejoins its cluster."""

    @property
    def node_id(self) -> str:
        return str(self.cluster("MYID"))

    def cluster(self, command: str, *arguments: str | int) -> Any:
        """CLUSTER ``command``."""
        return self.ask("CLUSTER", command, *arguments)

    def slot_map(self) -> SlotMap:
        """As this node sees it."""
        return {
            range(first, last + 1): (master[1], *sorted(replica[1] for replica in replicas))
            for first, last, master, *replicas in self.cluster("SLOTS")
        }

    def _choose_ports(self) -> None:
        while not (is_free(port := secrets.choice(_CLUSTER_PORTS)) and is_free(port + _BUS)):
            pass
        self.port = port

    def _ports(self) -> tuple[int, ...]:
        return (self.port, self.port + _BUS)


class RedisCluster(Group[ClusterNode]):
    """``with RedisCluster() as cluster:``; each argument is a line of redis.conf for all nodes.

    ``node_timeout`` (seconds): for how long a node must be silent before the others consider it dead. Short for tests
    that kill nodes; long for other tests, since a node may not be scheduled for a while on a busy machine.
    """

    def __init__(self, *config: str, password: str | None = None, node_timeout: float = 1.0) -> None:
        credentials = [f"masterauth {password}"] if password else []
        lines = ("cluster-enabled yes", "cluster-require-full-coverage no")
        super().__init__(
            [ClusterNode(*QUICK, *lines, *credentials, *config, password=password) for _ in range(2 * _MASTERS)]
        )
        self._password = password
        self._node_timeout = node_timeout

    @property
    def nodes(self) -> list[ClusterNode]:
        return self.servers

    @property
    def url(self) -> str:
        """With the addresses of the masters at the start."""
        user_info = f":{self._password}@" if self._password else ""
        return f"redis+cluster://{user_info}{','.join(node.address for node in self.nodes[:_MASTERS])}"

    # ---- nodes and slots

    def master_of(self, key_or_slot: str | int) -> ClusterNode:
        """The master of a key or a slot, as the first node that answers sees it."""
        slot = key_or_slot if isinstance(key_or_slot, int) else key_slot(key_or_slot.encode())
        return self.at(next(ports[0] for slots, ports in self._map().items() if slot in slots))

    def masters(self) -> list[ClusterNode]:
        """The nodes that serve slots."""
        return [self.at(port) for port in sorted({ports[0] for ports in self._map().values()})]

    def replica_of(self, master: ClusterNode) -> ClusterNode:
        """The replica that would take over from ``master``."""
        return self.at(next(ports[1] for ports in self._map().values() if ports[0] == master.port))

    def flush(self) -> None:
        """Forget all data and all scripts, everywhere."""
        for master in self.masters():
            master.flush()

    def flush_if_ok(self) -> bool:
        """The same, unless a node says that it, or another, does not serve its slots."""
        masters = self.masters()
        if not all("cluster_state:ok" in str(master.cluster("INFO")) for master in masters):
            return False
        for master in masters:
            master.flush()
        return True

    # ---- failover

    def kill_master(self, node: ClusterNode) -> None:
        """SIGKILL for a node that serves slots."""
        assert node in self.masters()
        node.kill()

    def wait_until_ok(self, within: float = FAILOVER_WITHIN) -> None:
        """Wait until nodes that answer serve all slots and every replica follows its master; all of these nodes must
        agree and report the cluster as ok."""
        try:
            wait_until(self._is_ok, within, "the cluster is ok")
        except ServerFailed as error:
            views = "\n".join(str(node.cluster("NODES")) for node in self.answering)
            raise ServerFailed(f"{error}\n{views}") from error

    # ---- migration of slots

    def migrate_slot(self, slot: int, to: ClusterNode) -> None:
        """Move a slot with all its keys, while it is in use."""
        self.begin_migration(slot, to)
        while self.move_keys(slot, to):
            pass
        self.end_migration(slot, to)

    def begin_migration(self, slot: int, to: ClusterNode) -> None:
        """From now on the source redirects requests for missing keys to ``to`` (ASK)."""
        source = self.master_of(slot)
        to.cluster("SETSLOT", slot, "IMPORTING", source.node_id)
        source.cluster("SETSLOT", slot, "MIGRATING", to.node_id)

    def move_keys(self, slot: int, to: ClusterNode, count: int = _MANY) -> int:
        """Move up to ``count`` keys of the slot; returns how many. With some moved, scripts over all get TRYAGAIN."""
        source = self.master_of(slot)
        keys: list[str] = source.cluster("GETKEYSINSLOT", slot, count)
        if keys:
            authentication = ["AUTH", self._password] if self._password else []
            source.ask("MIGRATE", to.host, to.port, "", 0, _MIGRATE_DEADLINE_MS, *authentication, "KEYS", *keys)
        return len(keys)

    def end_migration(self, slot: int, to: ClusterNode) -> None:
        """``to`` serves the slot. It is notified first: otherwise no node would serve the slot for a moment.

        Returns when all masters know the epoch of the change. If the slot moved again before that, an earlier owner
        would win: two masters would each consider the other the owner and never agree.
        """
        masters = self.masters()
        source, new_owner = self.master_of(slot), to.node_id
        for node in (to, source, *(one for one in masters if one not in (to, source))):
            node.cluster("SETSLOT", slot, "NODE", new_owner)
        epoch = re.search(r"cluster_my_epoch:(\d+)", str(to.cluster("INFO")))
        assert epoch is not None
        wait_until(lambda: self._know(new_owner, int(epoch[1])), _GOSSIP_WITHIN, "the move is known")

    # ---- inside

    def _know(self, identity: str, epoch: int) -> bool:
        """Whether all masters know ``epoch`` of the node ``identity``."""
        views = [str(master.cluster("NODES")).splitlines() for master in self.masters()]
        return all(
            any(line.startswith(identity) and int(line.split()[6]) >= epoch for line in lines) for lines in views
        )

    def _map(self) -> SlotMap:
        return self.answering[0].slot_map()

    def _start(self) -> None:
        start_all(self.nodes)
        self._set_node_timeout(_MEETING_TIMEOUT)
        masters, replicas = self.nodes[:_MASTERS], self.nodes[_MASTERS:]
        for place, node in enumerate(self.nodes):
            # Nodes with the same epoch would first have to agree which of them keeps it.
            node.cluster("SET-CONFIG-EPOCH", place + 1)
        for place, master in enumerate(masters):
            first, end = (REDIS_CLUSTER_HASH_SLOTS * edge // _MASTERS for edge in (place, place + 1))
            master.cluster("ADDSLOTS", *range(first, end))
        for node in self.nodes:  # all pairs: faster than gossip
            for other in self.nodes:
                node.cluster("MEET", other.host, other.port)
        wait_until(self._have_met, READY_WITHIN, "all nodes have met")
        for master, replica in zip(masters, replicas, strict=True):
            replica.cluster("REPLICATE", master.node_id)
        self._set_node_timeout(_READY_TIMEOUT)
        self.wait_until_ok(READY_WITHIN)
        self._set_node_timeout(self._node_timeout)

    def _set_node_timeout(self, seconds: float) -> None:
        for node in self.nodes:
            node.ask("CONFIG SET", "cluster-node-timeout", round(seconds * 1000))
            node.ask("CONFIG REWRITE")  # applies after a restart too

    def _have_met(self) -> bool:
        known = [str(node.cluster("NODES")) for node in self.nodes]
        return all(nodes.count("\n") == len(self.nodes) and "handshake" not in nodes for nodes in known)

    def _is_ok(self) -> bool:
        nodes = self.answering
        maps = [node.slot_map() for node in nodes]
        masters = {self.at(ports[0]) for ports in maps[0].values()}
        members = {self.at(port) for ports in maps[0].values() for port in ports}
        return (
            all("cluster_state:ok" in str(node.cluster("INFO")) for node in nodes)
            and all(each == maps[0] for each in maps)
            and sum(map(len, maps[0])) == REDIS_CLUSTER_HASH_SLOTS
            and masters <= set(nodes) <= members
            and all(is_linked(node) for node in nodes if node not in masters)
        )
