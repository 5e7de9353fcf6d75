"""The lock servers of a run: started on free loopback ports, in the directory of the run, and ended with it.

Nothing here connects to a server that the ladder has not started itself.
"""

from __future__ import annotations

import shutil
import signal
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from holdfast.cli.ladder.processes import STEP_TIMEOUT, LadderFailed, Processes

_HOST: Final = "127.0.0.1"
_POLL: Final = 0.005
_ATTEMPTS: Final = 5
#: From Debian's package zookeeper. The manifest of the first lists its dependencies, except for a part of Netty.
_JARS: Final = tuple(Path("/usr/share/java", jar) for jar in ("zookeeper.jar", "netty-codec.jar", "slf4j-simple.jar"))
_MEMBERS: Final = 3
_NOTHING_ON_DISK: Final = ("--save", "", "--appendonly", "no", "--repl-diskless-sync-delay", "0")
#: A small JVM that starts fast. No fsync: the process is killed, never the machine.
_JVM: Final = (
    *("-Xmx64m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto", "-XX:-UsePerfData"),
    *("-Dzookeeper.jmx.log4j.disable=true", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"),
    *("-Dzookeeper.forceSync=no", "-Dzookeeper.fastleader.maxNotificationInterval=400"),
)
_MAIN: Final = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
_TICK: Final = 100  # ms; ZooKeeper ends a session on a full tick


def wait_until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + STEP_TIMEOUT
    while not condition():
        if time.monotonic() > deadline:
            raise LadderFailed(f"{what}: not within {STEP_TIMEOUT:g} s")
        time.sleep(_POLL)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((_HOST, 0))
        port: int = probe.getsockname()[1]
        return port


class Program:
    """A server program and its log, in a directory of its own.

    That is also its working directory, so that no path is written to a configuration file, where '#', '%' or a byte
    that is not UTF-8 would be misread.
    """

    def __init__(self, processes: Processes, name: str) -> None:
        self._processes = processes
        self.directory = processes.directory / name
        self.directory.mkdir()
        self._log = self.directory / "log"
        self._pid = 0

    def launch(self, argv: list[str]) -> None:
        self._log.unlink(missing_ok=True)
        self._pid = self._processes.server(argv, self._log)

    def kill(self) -> None:
        """Send SIGKILL."""
        self._processes.signal(self._pid, signal.SIGKILL)

    def log(self) -> str:
        return self._log.read_text(errors="replace") if self._log.exists() else ""

    def running(self) -> bool:
        return self._processes.exit_code(self._pid) is None

    def failed_on_a_taken_port(self) -> bool:
        """Called while it does not answer. False: it is still starting. LadderFailed if it ended for another reason."""
        if "Address already in use" in self.log():
            return True
        if self.running():
            return False
        last = self.log().strip().splitlines()[-1:]
        raise LadderFailed(f"{self.directory.name} did not start: {''.join(last) or 'no reason was given'}")


class Redis(Program):
    """One redis-server that keeps nothing on disk."""

    def __init__(self, processes: Processes, name: str) -> None:
        super().__init__(processes, name)
        for _ in range(_ATTEMPTS):
            self.port = _free_port()
            if self._start():
                return
        raise LadderFailed(f"no free port found in {_ATTEMPTS} attempts")

    @property
    def url(self) -> str:
        return f"redis://{_HOST}:{self.port}/0"

    def ask(self, *command: str | int) -> Any:
        client: Any = self._client
        return client.execute_command(*command)

    def restart_empty(self) -> None:
        self.kill()
        if not self._start():
            raise LadderFailed(f"port {self.port} was taken while redis-server restarted")

    def never_expires(self, key: str) -> bool:
        """Whether the key exists and has no expiry."""
        no_expiry = -1
        return bool(self.ask("PTTL", key) == no_expiry)

    def follow(self, master: Redis) -> None:
        """Become its replica, and wait until the data is copied."""
        self.ask("REPLICAOF", _HOST, master.port)
        wait_until(lambda: self.ask("INFO", "replication")["master_link_status"] == "up", "the replica follows")

    def lose_master(self) -> None:
        """Cut the link to the master: nothing is replicated from now on."""
        nowhere = 1
        self.ask("REPLICAOF", _HOST, nowhere)

    def promote(self) -> None:
        self.ask("REPLICAOF", "NO", "ONE")

    def _start(self) -> bool:
        import redis
        from redis.backoff import NoBackoff
        from redis.retry import Retry

        binary = shutil.which("redis-server")
        assert binary is not None
        self.launch([binary, "--bind", _HOST, "--port", str(self.port), *_NOTHING_ON_DISK])
        # The log first: a PING alone could be answered by a program that took the port.
        deadline = time.monotonic() + STEP_TIMEOUT
        while "Ready to accept connections" not in self.log():
            if self.failed_on_a_taken_port():
                return False
            if time.monotonic() > deadline:
                raise LadderFailed(f"redis-server was not ready within {STEP_TIMEOUT:g} s")
            time.sleep(_POLL)
        self._client = redis.Redis.from_url(self.url, decode_responses=True, retry=Retry(NoBackoff(), 0))
        self._processes.at_exit(self._client.close)
        self._client.ping()
        return True


class ZooKeeper:
    """An ensemble of three servers."""

    def __init__(self, processes: Processes, name: str) -> None:
        for attempt in range(_ATTEMPTS):
            self._members = [
                _Member(processes, f"{name}-{attempt}-{number}", number) for number in range(1, _MEMBERS + 1)
            ]
            if self._start():
                return
        raise LadderFailed(f"no free ports found in {_ATTEMPTS} attempts")

    @property
    def addresses(self) -> list[str]:
        return [f"{_HOST}:{member.port}" for member in self._members]

    def replace_leader(self) -> None:
        """Kill the leader, and wait until another server is the leader."""
        leader = next(member for member in self._members if member.mode() == "leader")
        leader.kill()
        others = [member for member in self._members if member is not leader]
        wait_until(lambda: {member.mode() for member in others} == {"leader", "follower"}, "another leader")
        self._killed = leader

    def repair(self) -> None:
        self._killed.start(self._members)
        wait_until(lambda: self._killed.mode() == "follower", "the killed member is back")

    def _start(self) -> bool:
        for member in self._members:
            member.start(self._members)
        roles = ["follower"] * (_MEMBERS - 1) + ["leader"]
        deadline = time.monotonic() + STEP_TIMEOUT
        while sorted(str(member.mode()) for member in self._members) != roles:
            if any(member.failed_on_a_taken_port() for member in self._members):
                for member in self._members:
                    member.kill()
                return False
            if time.monotonic() > deadline:
                raise LadderFailed(f"ZooKeeper was not ready within {STEP_TIMEOUT:g} s")
            time.sleep(4 * _POLL)
        return True


class _Member(Program):
    def __init__(self, processes: Processes, name: str, number: int) -> None:
        super().__init__(processes, name)
        self.number = number
        self.port, self._quorum, self._election = (_free_port() for _ in range(3))

    def start(self, members: list[_Member]) -> None:
        data = self.directory / "data"
        data.mkdir(exist_ok=True)
        (data / "myid").write_text(f"{self.number}\n")
        lines = ["dataDir=data", f"clientPortAddress={_HOST}", f"clientPort={self.port}", f"tickTime={_TICK}"]
        lines += ["initLimit=50", "syncLimit=10", "maxSessionTimeout=60000", "4lw.commands.whitelist=srvr"]
        lines += ["admin.enableServer=false", "maxClientCnxns=0"]
        lines += [f"server.{each.number}={_HOST}:{each._quorum}:{each._election}" for each in members]
        (self.directory / "zoo.cfg").write_text("\n".join(lines) + "\n")
        java = shutil.which("java")
        assert java is not None
        self.launch([java, *_JVM, "-cp", ":".join(map(str, _JARS)), _MAIN, "zoo.cfg"])

    def mode(self) -> str | None:
        """``leader``, ``follower``; None if it does not serve."""
        answer = b""
        try:
            with socket.create_connection((_HOST, self.port), 1.0) as connection:
                connection.sendall(b"srvr")
                while data := connection.recv(1 << 16):
                    answer += data
        except OSError:
            return None
        modes = (line.removeprefix("Mode: ") for line in answer.decode().splitlines() if line.startswith("Mode: "))
        return next(modes, None)


def missing_redis() -> str:
    """What this machine lacks for Redis; empty if nothing."""
    from importlib.util import find_spec

    from holdfast._version import DISTRIBUTION

    if find_spec("redis") is None:
        return f"redis-py: pip install '{DISTRIBUTION}[redis]'"
    return "" if shutil.which("redis-server") else "redis-server on PATH: apt-get install redis-server"


def missing_zookeeper() -> str:
    """What this machine lacks for ZooKeeper; empty if nothing."""
    from importlib.util import find_spec

    from holdfast._version import DISTRIBUTION

    if find_spec("kazoo") is None:
        return f"kazoo: pip install '{DISTRIBUTION}[zookeeper]'"
    if shutil.which("java") is None or not all(jar.exists() for jar in _JARS):
        return "ZooKeeper: apt-get install zookeeper"
    return ""
