"""A real ZooKeeper: on a free loopback port, in a directory of its own, removed at the end."""

from __future__ import annotations

import shutil
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Final, NamedTuple

from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from tests.servers.ports import free_port
from tests.servers.process import ServerProcess

JAVA: Final = shutil.which("java")
# From Debian's package zookeeper and its dependencies. The manifest of the first lists its dependencies, except a part
# of Netty; the last is needed for a log.
_JARS: Final = tuple(Path("/usr/share/java", jar) for jar in ("zookeeper.jar", "netty-codec.jar", "slf4j-simple.jar"))
_MAIN: Final = "org.apache.zookeeper.server.quorum.QuorumPeerMain"

#: A small JVM that starts quickly: half a second from start to answer.
_JVM: Final = (
    "-Xmx128m",
    "-XX:TieredStopAtLevel=1",
    "-XX:+UseSerialGC",
    "-Xshare:auto",
    "-XX:-UsePerfData",  # a file elsewhere, which remains when java is killed
)

#: The parent of all locks unless a test chooses another path; ``operations`` counts the requests below it.
BASE: Final = "/holdfast"

# Long: the machine may be busy starting other servers.
_CONNECT_DEADLINE: Final = 40.0
_ANSWER_DEADLINE: Final = 5.0


def missing() -> str | None:
    """What this machine lacks for ZooKeeper; None if it has everything."""
    if JAVA is None:
        return "java is not on PATH"
    return next((f"{jar} is not installed" for jar in _JARS if not jar.exists()), None)


class Operations(NamedTuple):
    """Requests that named a path, as the server counts them: no pings, no syncs, no closing of sessions."""

    reads: int
    writes: int

    def since(self, earlier: Operations) -> Operations:
        return Operations(self.reads - earlier.reads, self.writes - earlier.writes)


class ZooKeeperServer(ServerProcess):
    """``with ZooKeeperServer("maxCnxns=5", …) as server:``; each argument is a line of zoo.cfg.

    ``tick`` (seconds): ZooKeeper's unit of time. Sessions last from 2 ticks to 60 s and end on a full tick; the shorter
    the tick, the sooner a dead session is detected. ``containers`` (seconds): how often it removes empty containers
    that have had children. ``jvm``: more arguments for java. ``tls`` (a directory with ca.crt,
    server.crt and server.key): a second port with TLS, which ``url`` uses. ``sasl``: users and their
    passwords for DIGEST-MD5; a client without credentials is still accepted as anonymous.
    Sessions survive a ``restart``: their timeouts start again.
    """

    program: ClassVar[str] = "zookeeper"

    def __init__(
        self,
        *config: str,
        tick: float = 0.1,
        containers: float = 60.0,
        jvm: Sequence[str] = (),
        tls: Path | None = None,
        sasl: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__()
        self.tls_port = 0
        self.tick = tick
        self.tls = tls
        self._config = config
        self._sasl = sasl
        self._containers = containers
        self._jvm = jvm
        self._clients: list[KazooClient] = []

    def close(self) -> None:
        """End it, close all clients that ``client`` returned, and remove its directory."""
        # First the server: a client waits for the answer to its close request, which a paused server does not send.
        self.kill()
        self.close_clients()
        super().close()

    # ---- facts

    @property
    def url(self) -> str:
        if self.tls:
            return f"zookeeper://{self.host}:{self.tls_port}{BASE}?tick={self.tick}&use_ssl=true&ca={self.tls}/ca.crt"
        return f"zookeeper://{self.address}{BASE}?tick={self.tick}"

    def client(self, hosts: str | None = None, **settings: Any) -> KazooClient:
        """A plain client, connected, for arranging and asserting. The server object closes it."""
        client = KazooClient(hosts or self.address, **settings)
        self._clients.append(client)
        client.start(_CONNECT_DEADLINE)
        return client

    def close_clients(self) -> None:
        """Close all clients that ``client`` returned. Each has its own threads and reconnects until it is closed."""
        while self._clients:
            close_client(self._clients.pop())

    def ask(self, command: str) -> str:
        """The answer to a four-letter command: ``ruok``, ``srvr``, ``cons``, ``dump``, ``wchp``, …"""
        answer = b""
        with socket.create_connection((self.host, self.port), _ANSWER_DEADLINE) as connection:
            connection.sendall(command.encode())
            while data := connection.recv(1 << 16):
                answer += data
        return answer.decode()

    def mode(self) -> str | None:
        """``standalone``, ``leader``, ``follower``; None if it does not serve."""
        if not self.answering:
            return None
        try:
            answer = self.ask("srvr")
        except OSError:
            return None
        return next((line.removeprefix("Mode: ") for line in answer.splitlines() if line.startswith("Mode: ")), None)

    def operations(self, base: str = BASE) -> Operations:
        """The number of operations so far in the tree below ``base`` (one path element)."""
        name = base.strip("/")
        counted = dict(line.split("\t", 1) for line in self.ask("mntr").splitlines() if "\t" in line)
        reads, writes = (f"zk_cnt_{name}_{kind}_per_namespace" for kind in ("read", "write"))
        return Operations(int(counted.get(reads, 0)), int(counted.get(writes, 0)))

    def flush(self) -> None:
        """Delete all nodes. Sessions remain, without their nodes."""
        client = self.client()
        for child in client.get_children("/"):
            if child != "zookeeper":
                try:
                    client.delete(f"/{child}", recursive=True)
                except NoNodeError:
                    pass  # a container that the server itself has just removed
        self._clients.remove(client)
        close_client(client)

    # ---- internals

    def _choose_ports(self) -> None:
        super()._choose_ports()
        self.tls_port = free_port() if self.tls else 0

    def _ports(self) -> list[int]:
        """All ports that it listens on."""
        return [self.port, self.tls_port] if self.tls else [self.port]

    def _configure(self) -> None:
        (self.directory / "zoo.cfg").write_text("\n".join(self._lines()) + "\n", "utf-8")

    def _command(self) -> list[str]:
        assert (lacking := missing()) is None, lacking
        properties = {
            # No fsync: the tests kill processes, not machines; written data is in the kernel's cache.
            "zookeeper.forceSync": "no",
            "zookeeper.preAllocSize": "1024",
            "znode.container.checkIntervalMs": str(round(self._containers * 1000)),
            "org.slf4j.simpleLogger.showDateTime": "true",
            "org.slf4j.simpleLogger.dateTimeFormat": "HH:mm:ss.SSS",
            "org.slf4j.simpleLogger.showShortLogName": "true",
            # Avoids a long log entry for each client that disconnects.
            "org.slf4j.simpleLogger.log.org.apache.zookeeper.server.NIOServerCnxn": "error",
        }
        if self.tls:
            # Only Netty supports TLS.
            properties["zookeeper.serverCnxnFactory"] = "org.apache.zookeeper.server.NettyServerCnxnFactory"
        if self._sasl:
            properties["java.security.auth.login.config"] = str(self.directory / "jaas.conf")
        settings = [f"-D{key}={value}" for key, value in properties.items()]
        classpath = ":".join(map(str, _JARS))
        return [str(JAVA), *_JVM, *settings, *self._jvm, "-cp", classpath, _MAIN, str(self.directory / "zoo.cfg")]

    def _lines(self) -> list[str]:
        tick = round(self.tick * 1000)
        lines = [f"dataDir={self.directory}/data", f"clientPortAddress={self.host}", f"clientPort={self.port}"]
        lines += [f"tickTime={tick}", f"minSessionTimeout={2 * tick}", "maxSessionTimeout=60000"]
        lines += ["4lw.commands.whitelist=*", "admin.enableServer=false", "maxClientCnxns=0"]
        return [*lines, *(self._tls_lines(self.tls) if self.tls else ()), *self._sasl_lines(), *self._config]

    def _tls_lines(self, tls: Path) -> list[str]:
        pem = self.directory / "server.pem"
        pem.write_text((tls / "server.key").read_text() + (tls / "server.crt").read_text())
        lines = [f"secureClientPort={self.tls_port}", f"secureClientPortAddress={self.host}"]
        lines += [f"ssl.keyStore.location={pem}", "ssl.keyStore.type=PEM", "ssl.clientAuth=none"]
        return [*lines, f"ssl.trustStore.location={tls}/ca.crt", "ssl.trustStore.type=PEM"]

    def _sasl_lines(self) -> list[str]:
        if not self._sasl:
            return []
        module = "org.apache.zookeeper.server.auth.DigestLoginModule required"
        users = "\n".join(f'user_{name}="{password}"' for name, password in self._sasl.items())
        (self.directory / "jaas.conf").write_text(f"Server {{\n{module}\n{users};\n}};\n", "utf-8")
        return ["authProvider.1=org.apache.zookeeper.server.auth.SASLAuthenticationProvider"]

    def _answers(self) -> bool:
        try:
            # The directory distinguishes it from another server that took the port.
            if f"dataDir={self.directory}/" not in self.ask("conf"):
                return False
            if self.tls:  # opened a moment later
                socket.create_connection((self.host, self.tls_port), _ANSWER_DEADLINE).close()
            return True
        except OSError:
            return False


def close_client(client: KazooClient) -> None:
    client.stop()
    client.close()
