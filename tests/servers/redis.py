"""A real redis-server: on a free loopback port, in a directory of its own, removed at the end."""

from __future__ import annotations

import functools
import re
import shutil
import socket
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Final

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from tests.servers.clock import Clock
from tests.servers.process import ServerProcess

BINARY: Final = shutil.which("redis-server")
_SINCE_7: Final = ("enable-debug-command ", "shutdown-timeout ")


@functools.cache
def version() -> tuple[int, ...]:
    """The version of the redis-server (or valkey-server under that name) on PATH."""
    assert BINARY is not None, "redis-server is not on PATH"
    answer = subprocess.run([BINARY, "--version"], check=True, capture_output=True, text=True).stdout
    found = re.search(r"v=(\d+(?:\.\d+)*)", answer)
    assert found, answer
    return tuple(int(part) for part in found[1].split("."))


class RedisServer(ServerProcess):
    """``with RedisServer("requirepass pw", …) as server:``; each argument is a line of redis.conf.

    ``tls`` (a directory with ca.crt, server.crt and server.key) makes it accept TLS only. Nothing is persisted unless
    a line enables it; ``restart`` uses the configuration on disk, as rewritten by Sentinel or CONFIG REWRITE.
    With ``clock`` the server uses that wall clock, which the test can move.
    """

    program: ClassVar[str] = "redis-server"
    #: The log line that shows that it listens.
    _listening: ClassVar[str] = "Ready to accept connections"

    def __init__(
        self, *config: str, password: str | None = None, tls: Path | None = None, clock: Clock | None = None
    ) -> None:
        super().__init__()
        self.password = password
        self.tls = tls
        self.clock = clock
        self.socket_path = self.directory / "s"
        self._config = config
        self._clients: list[redis.Redis] = []

    def close(self) -> None:
        """End it, close all clients that ``client`` returned, and remove its directory."""
        for client in self._clients:
            client.close()
        self._clients.clear()
        super().close()

    # ---- facts

    @property
    def url(self) -> str:
        return self.url_as("", self.password)

    def url_as(self, username: str, password: str | None) -> str:
        """The URL for one of the server's users."""
        user_info = f"{username}:{password}@" if password else ""
        scheme, query = ("rediss", f"?ssl_ca_certs={self.tls}/ca.crt") if self.tls else ("redis", "")
        return f"{scheme}://{user_info}{self.host}:{self.port}/0{query}"

    @property
    def unix_url(self) -> str:
        return f"unix://{f':{self.password}@' if self.password else ''}{self.socket_path}"

    def client(self, url: str | None = None, **keywords: Any) -> redis.Redis:
        """A plain client for arranging and asserting, without retries. The server object closes it."""
        settings: dict[str, Any] = {"socket_timeout": 5.0, "retry": Retry(NoBackoff(), 0)}
        client = redis.Redis.from_url(url or self.url, **settings | keywords)
        self._clients.append(client)
        return client

    def ask(self, *command: str | int) -> Any:
        """Send one command; the answer is text, parsed as redis-py parses it."""
        return self._control.execute_command(*command)

    def flush(self) -> None:
        """Delete all data and all scripts. On a bare socket: most tests begin with it, and to make a client of redis-py
        takes much longer."""
        authentication = f"AUTH {self.password}\r\n" if self.password else ""
        requests = f"{authentication}FLUSHALL\r\nSCRIPT FLUSH\r\n"
        with socket.socket(socket.AF_UNIX) as bare, bare.makefile("rb") as answers:
            bare.settimeout(5.0)
            bare.connect(str(self.socket_path))
            bare.sendall(requests.encode())
            for request in requests.splitlines():
                answer = answers.readline()
                assert answer == b"+OK\r\n", f"{request}: {answer!r}"

    # ---- internals

    @functools.cached_property
    def _control(self) -> Any:
        return self.client(decode_responses=True)

    def _configure(self) -> None:
        (self.directory / "redis.conf").write_text("\n".join(self._lines()) + "\n", "utf-8")

    def _command(self) -> list[str]:
        assert BINARY is not None, "redis-server is not on PATH"
        return [BINARY, str(self.directory / "redis.conf")]

    def _environment(self) -> Mapping[str, str]:
        return self.clock.environment if self.clock else {}

    def _lines(self) -> list[str]:
        port = "tls-port" if self.tls else "port"
        lines = [f"bind {self.host}", f"{port} {self.port}", f"unixsocket {self.socket_path}"]
        lines += ['save ""', "appendonly no", "daemonize no", "enable-debug-command yes", f"dir {self.directory}"]
        if self.tls:
            lines += ["port 0", f"tls-ca-cert-file {self.tls}/ca.crt", "tls-auth-clients no"]
            lines += [f"tls-cert-file {self.tls}/server.crt", f"tls-key-file {self.tls}/server.key"]
        if self.password:
            lines.append(f"requirepass {self.password}")
        # An older server does not need these and would not start with them.
        return [line for line in (*lines, *self._config) if version() >= (7,) or not line.startswith(_SINCE_7)]

    def _answers(self) -> bool:
        # Check the log line first: another server that took the port would answer a PING, too.
        if self._listening not in self.log():
            return False
        client = redis.Redis.from_url(self.url, socket_timeout=1.0, retry=Retry(NoBackoff(), 0))
        try:
            return bool(client.ping())
        except (redis.AuthenticationError, redis.exceptions.NoPermissionError):
            return True  # a test of access rights: the server answers, so it is ready
        except (redis.ConnectionError, redis.TimeoutError):
            return False
        finally:
            client.close()
