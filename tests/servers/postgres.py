"""A real PostgreSQL server from ``initdb``: on a free loopback port, in a directory of its own, removed at the end."""

from __future__ import annotations

import os
import pwd
import secrets
import shutil
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar, Final, Self

import psycopg

from tests.servers.process import ServerFailed, ServerProcess
from tests.support.waiting import eventually

_SETPRIV: Final = shutil.which("setpriv")
#: PostgreSQL refuses to run as root; the first of these accounts that exists runs it then.
_ACCOUNTS: Final = ("postgres", "nobody")

#: Data need not survive a power failure, and the tests are small.
_SETTINGS: Final = {
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    "fsync": "off",
    "synchronous_commit": "off",
    "full_page_writes": "off",
    "wal_level": "minimal",
    "max_wal_senders": "0",
    "shared_buffers": "16MB",
    "max_connections": "60",
    "autovacuum": "off",
    "jit": "off",
}
_BLOCKED_WITHIN: Final = 40.0


def _programs() -> Path | None:
    """The newest directory with PostgreSQL's programs: Debian's, or the one on PATH."""
    debian = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: float(path.parts[-3]))
    found = shutil.which("initdb")
    candidates = [path.parent for path in reversed(debian)] + ([Path(found).parent] if found else [])
    return next((directory for directory in candidates if (directory / "postgres").exists()), None)


PROGRAMS: Final = _programs()


def _account() -> pwd.struct_passwd | None:
    """The account that runs the server in place of root."""
    return next((entry for name in _ACCOUNTS for entry in pwd.getpwall() if entry.pw_name == name), None)


def missing() -> str | None:
    """What this machine lacks for PostgreSQL; None if it has everything."""
    if PROGRAMS is None:
        return "PostgreSQL's initdb and postgres are not installed"
    if os.geteuid() == 0 and (_SETPRIV is None or _account() is None):
        return "PostgreSQL cannot run as root, and there is no setpriv or no account for it"
    return None


class PostgresServer(ServerProcess):
    """``with PostgresServer() as server:``; ``stop``, ``pause`` and ``resume`` as for every server."""

    program: ClassVar[str] = "postgres"

    def __init__(self) -> None:
        super().__init__()
        self._password = secrets.token_hex(16)

    # ---- life cycle

    def start(self) -> Self:
        """Create the data directory and start on a free port."""
        self._initialise()
        return super().start()

    def close(self) -> None:
        """End it and remove the directory. Not by SIGKILL, which would leave a shared memory segment behind."""
        self._end(signal.SIGQUIT)
        super().close()

    def clear(self) -> None:
        """End all other sessions and drop every table."""
        with self.connect(autocommit=True) as admin:
            admin.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                "WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()"
            )
            admin.execute("DROP SCHEMA public CASCADE")
            admin.execute("CREATE SCHEMA public")

    # ---- facts

    @property
    def location(self) -> str:
        """What follows ``postgresql://`` in a URL."""
        return f"holdfast:{self._password}@{self.host}:{self.port}/postgres"

    @property
    def url(self) -> str:
        return f"postgresql://{self.location}"

    def connect(self, **settings: Any) -> psycopg.Connection[Any]:
        return psycopg.connect(self.url, connect_timeout=10, **settings)

    def wait_until_blocked(self, pid: int) -> None:
        """Wait until the session ``pid`` waits for a lock of another session."""
        with self.connect(autocommit=True) as admin:

            def blocked() -> bool:
                row = admin.execute("SELECT cardinality(pg_blocking_pids(%s))", [pid]).fetchone()
                return row is not None and row[0] > 0

            eventually(blocked, _BLOCKED_WITHIN, f"session {pid} waits for a lock")

    # ---- internals

    def _initialise(self) -> None:
        secret = self.directory / "password"
        secret.write_text(self._password)
        if (account := _account()) is not None and os.geteuid() == 0:
            for path in (self.directory, secret):
                os.chown(path, account.pw_uid, account.pw_gid)
        done = subprocess.run(
            self._as_account(
                "initdb", "--pgdata", str(self.directory / "data"), "--username", "holdfast",
                "--auth", "scram-sha-256", "--pwfile", str(secret),
                "--encoding", "UTF8", "--locale", "C", "--no-sync", "--no-instructions",
            ),
            cwd=self.directory, capture_output=True, text=True, check=False,
        )  # fmt: skip
        if done.returncode != 0:
            raise ServerFailed(f"initdb ended with {done.returncode}\n{done.stdout}\n{done.stderr}")

    def _command(self) -> list[str]:
        settings = _SETTINGS | {"port": str(self.port)}
        options = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
        return self._as_account("postgres", "-D", str(self.directory / "data"), *options)

    def _as_account(self, program: str, *arguments: str) -> list[str]:
        assert PROGRAMS is not None, "PostgreSQL is not installed"
        return [*_other_account(), str(PROGRAMS / program), *arguments]

    def _answers(self) -> bool:
        try:
            self.connect().close()  # with the generated password, which no other server accepts
        except psycopg.OperationalError:
            return False
        return True


def _other_account() -> Sequence[str]:
    """The command that changes to the server's account; nothing unless run as root."""
    account = _account()
    if os.geteuid() != 0 or account is None:
        return []
    assert _SETPRIV is not None
    # The death signal is set again, since a change of the account clears it.
    identity = ["--reuid", str(account.pw_uid), "--regid", str(account.pw_gid), "--clear-groups"]
    return [_SETPRIV, *identity, "--pdeathsig", "INT"]
