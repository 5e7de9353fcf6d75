"""A real redis-server of one's own: on a free loopback port, in a directory of its own, gone at the end."""

from __future__ import annotations

import functools
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, Final, Self

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from tests.servers.clock import Clock
from tests.servers.ports import Kept, free_port

BINARY: Final = shutil.which("redis-server")
# A run that is killed (a time-out, an impatient person) cannot clean up: the kernel then ends the server. Tied to the
# thread that starts it.
_SETPRIV: Final = shutil.which("setpriv")
_WITH_US: Final = [_SETPRIV, "--pdeathsig", "TERM"] if _SETPRIV else []

_SINCE_7: Final = ("enable-debug-command ", "shutdown-timeout ")
# Long: the machine may be busy with something else, such as other servers that start.
_START_DEADLINE: Final = 30.0
_STOP_DEADLINE: Final = 10.0
_POLL: Final = 0.005
_ATTEMPTS: Final = 5


@functools.cache
def version() -> tuple[int, ...]:
    """Of the redis-server (or valkey-server under that name) on PATH."""
    assert BINARY is not None, "redis-server is not on PATH"
    told = subprocess.run([BINARY, "--version"], check=True, capture_output=True, text=True).stdout
    found = re.search(r"v=(\d+(?:\.\d+)*)", told)
    assert found, told
    return tuple(int(part) for part in found[1].split("."))


class ServerFailed(RuntimeError):
    """The server did not start. The text has the end of its log; its directory is kept."""


class RedisServer:
    """``with RedisServer("requirepass pw", …) as server:``; each argument is a line of redis.conf.

    ``tls`` (a directory with ca.crt, server.crt and server.key) makes it speak TLS only. Nothing is persisted unless
    a line says so. ``stop``, ``kill``, ``pause`` leave the port and the directory as they are, for ``restart`` and
    ``resume``. With ``clock`` it lives by that wall clock, which the test can move.
    """

    #: What it is called in reports of failed tests, and what its log says when it listens.
    program: ClassVar[str] = "redis-server"
    _listening: ClassVar[str] = "Ready to accept connections"

    def __init__(
        self, *config: str, password: str | None = None, tls: Path | None = None, clock: Clock | None = None
    ) -> None:
        self.host = "127.0.0.1"
        self.port = 0
        self.password = password
        self.tls = tls
        self.clock = clock
        self.directory = Path(tempfile.mkdtemp(prefix="holdfast-redis-"))
        self.socket_path = self.directory / "s"
        self._config = config
        self._process: subprocess.Popen[bytes] | None = None
        self._paused = False
        self._kept = Kept()
        self._clients: list[redis.Redis] = []

    # ---- life

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def start(self) -> Self:
        """Start on a free port."""
        self.spawn()
        return self.wait_until_ready()

    def spawn(self) -> None:
        """Start on a free port and do not wait: several servers can then come up side by side.

        All from one thread, and one that lives on: a server ends with the thread that started it (``_WITH_US``).
        """
        self.port = self._choose_port()
        self._kept.keep(*self._ports())
        (self.directory / "redis.conf").write_text("\n".join(self._lines()) + "\n", "utf-8")
        self._launch()

    def wait_until_ready(self) -> Self:
        """After ``spawn``. A port taken by somebody between our look and the server's bind: try another one."""
        for _ in range(_ATTEMPTS - 1):
            if self._comes_up():
                return self
            self.spawn()
        if self._comes_up():
            return self
        raise ServerFailed(f"no free port found in {_ATTEMPTS} attempts; log kept in {self.directory}\n{self.log()}")

    def restart(self) -> Self:
        """Start again on the same port, after ``stop`` or ``kill`` (or stop first).

        With the configuration as it is on disk: what Sentinel or CONFIG REWRITE wrote there counts.
        """
        self.stop()
        self._launch()
        if not self._comes_up():
            raise ServerFailed(f"port {self.port} was taken meanwhile\n{self.log()}")
        return self

    def stop(self) -> None:
        """End it in good order (SIGTERM): it saves if it was told to persist."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """End it as a power cut would end the process (SIGKILL); what the kernel has, the kernel keeps."""
        self._end(signal.SIGKILL)

    def pause(self) -> None:
        """Freeze it (SIGSTOP): connections stay open, the kernel still accepts new ones, nobody answers."""
        os.kill(self.pid, signal.SIGSTOP)
        os.waitid(os.P_PID, self.pid, os.WSTOPPED)  # on a busy machine it may run on for a while
        self._paused = True

    def resume(self) -> None:
        os.kill(self.pid, signal.SIGCONT)
        self._paused = False

    def close(self) -> None:
        """Stop it and remove every trace."""
        for client in self._clients:
            client.close()
        self._clients.clear()
        self.stop()
        self._kept.let_go()
        shutil.rmtree(self.directory, ignore_errors=True)

    # ---- facts

    @property
    def pid(self) -> int:
        assert self._process is not None, "the server is not running"
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def answering(self) -> bool:
        """Running, and not frozen by ``pause``."""
        return self.running and not self._paused

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"

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
        """A plain client for arranging and asserting. No retries: what a test sees is what happened. Closed by us."""
        settings: dict[str, Any] = {"socket_timeout": 5.0, "retry": Retry(NoBackoff(), 0)}
        client = redis.Redis.from_url(url or self.url, **settings | keywords)
        self._clients.append(client)
        return client

    def ask(self, *command: str | int) -> Any:
        """Send one command; the answer is text, parsed as redis-py parses it."""
        return self._control.execute_command(*command)

    def flush(self) -> None:
        """Forget all data and all scripts."""
        client = self.client()
        client.flushall()
        client.script_flush()
        client.close()
        self._clients.remove(client)

    def log(self, lines: int = 40) -> str:
        """The end of its log."""
        try:
            text = (self.directory / "log").read_text("utf-8", "replace")
        except FileNotFoundError:
            return "(no log)"
        return "\n".join(text.splitlines()[-lines:])

    # ---- inside

    @functools.cached_property
    def _control(self) -> Any:
        return self.client(decode_responses=True)

    def _choose_port(self) -> int:
        return free_port()

    def _ports(self) -> tuple[int, ...]:
        """All that it listens on."""
        return (self.port,)

    def _command(self) -> list[str]:
        assert BINARY is not None, "redis-server is not on PATH"
        return [*_WITH_US, BINARY, str(self.directory / "redis.conf")]

    def _launch(self) -> None:
        assert not self.running
        environment = os.environ | (self.clock.environment if self.clock else {})
        log = self.directory / "log"
        log.unlink(missing_ok=True)
        with log.open("wb") as output:
            # A session of its own: Ctrl-C in the terminal is for the tests, which then stop the server in good order.
            self._process = subprocess.Popen(
                self._command(), cwd=self.directory, env=environment,
                stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True,
            )  # fmt: skip

    def _comes_up(self) -> bool:
        """Wait until it answers; False if the port was taken."""
        assert self._process is not None
        deadline = time.monotonic() + _START_DEADLINE
        while time.monotonic() < deadline:
            if self._process.poll() is not None:
                if "Address already in use" in self.log():
                    return False
                raise ServerFailed(f"redis-server ended with {self._process.returncode}\n{self.log()}")
            # The log line first: a PING alone could be answered by the stranger who took the port.
            if self._listening in self.log() and self._answers():
                return True
            time.sleep(_POLL)
        self._end(signal.SIGKILL)
        raise ServerFailed(f"redis-server was not ready within {_START_DEADLINE:g} s\n{self.log()}")

    def _lines(self) -> list[str]:
        port = "tls-port" if self.tls else "port"
        lines = [f"bind {self.host}", f"{port} {self.port}", f"unixsocket {self.socket_path}"]
        lines += ['save ""', "appendonly no", "daemonize no", "enable-debug-command yes", f"dir {self.directory}"]
        if self.tls:
            lines += ["port 0", f"tls-ca-cert-file {self.tls}/ca.crt", "tls-auth-clients no"]
            lines += [f"tls-cert-file {self.tls}/server.crt", f"tls-key-file {self.tls}/server.key"]
        if self.password:
            lines.append(f"requirepass {self.password}")
        # An older one does without these, and would not start with them.
        return [line for line in (*lines, *self._config) if version() >= (7,) or not line.startswith(_SINCE_7)]

    def _answers(self) -> bool:
        client = redis.Redis.from_url(self.url, socket_timeout=1.0, retry=Retry(NoBackoff(), 0))
        try:
            return bool(client.ping())
        except (redis.AuthenticationError, redis.exceptions.NoPermissionError):
            return True  # a test about access rights: it answers, and that is all we ask
        except (redis.ConnectionError, redis.TimeoutError):
            return False
        finally:
            client.close()

    def _end(self, number: signal.Signals) -> None:
        process = self._process
        if process is None:
            return
        if process.poll() is None:
            process.send_signal(number)
            if self._paused and number is not signal.SIGKILL:
                process.send_signal(signal.SIGCONT)  # a frozen process does not see SIGTERM
            try:
                process.wait(_STOP_DEADLINE)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(_STOP_DEADLINE)
        self._paused = False
        self._process = None
