"""Gathers the facts about an ensemble: each host of the URL by itself, then a trial lock under the base.

A refused question is noted and is not fatal. Nothing is left behind: the release removes the lock's node, and nodes
that were created above it are removed again.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import Any, Final

from kazoo.exceptions import NoNodeError

from holdfast._config.targets import Target
from holdfast._runtime.blocking import run
from holdfast.cli.doctor.concurrently import run_concurrently
from holdfast.cli.doctor.facts import host_port
from holdfast.cli.doctor.zookeeper import four_letter_commands
from holdfast.cli.doctor.zookeeper.facts import Ensemble, Server
from holdfast.cli.doctor.zookeeper.host_connection import HostConnection
from holdfast.engines.base import Claim, RequestFailed
from holdfast.engines.zookeeper.handler import TlsSetupFailed, tls_context
from holdfast.errors import EngineRefused, LockError

_OWN: Final = "holdfast-doctor"
#: The node with the members of the ensemble. Every client may read it.
_MEMBERS: Final = "/zookeeper/config"
#: Opening a session takes a handshake and an agreement of the majority: so many times request_timeout.
_REQUESTS_FOR_A_SESSION: Final = 2


def gather(target: Target) -> Ensemble:
    """The facts about the ensemble. Servers that do not answer are facts, not errors."""
    hosts = target.target.hosts
    told = run_concurrently(lambda host: _told(target, host), hosts)
    ensemble = Ensemble(
        target.options,
        target.engine_options["tick"],
        target.target.base,
        target.engine_options.get("acl") == "open",
        told,
    )
    with ExitStack() as leaving:
        connections = [leaving.enter_context(HostConnection(target, host)) for host in hosts]
        timeout = target.options.request_timeout
        servers = run_concurrently(lambda pair: _connected(*pair, timeout), zip(connections, told, strict=True))
        served = [connection for connection, server in zip(connections, servers, strict=True) if not server.failure]
        ensemble = replace(ensemble, servers=servers)
        if not served:
            return ensemble
        first = served[0]
        if first.granted != first.ttl:  # every lock with this ttl is refused; use the granted one for the other checks
            first = leaving.enter_context(first.again(first.granted))
            first.open(_REQUESTS_FOR_A_SESSION * timeout)
        return _tried(ensemble, connections, first, timeout)


def _told(target: Target, host: tuple[str, int]) -> Server:
    """The answers to four-letter commands. They need no session, so a server without a majority answers, too."""
    server, timeout = Server(host_port(*host)), target.options.request_timeout
    found: dict[str, Any] = {}
    withheld: dict[str, str] = {}
    try:
        tls = tls_context(**_files(target)) if target.engine_options.get("use_ssl") else None
        for name, word, separator in (("said", "srvr", ":"), ("settings", "conf", "=")):
            try:
                found[name] = four_letter_commands.lines(four_letter_commands.ask(host, word, timeout, tls), separator)
            except four_letter_commands.Withheld as refusal:
                withheld[word] = str(refusal)
    except four_letter_commands.Idle:
        found |= {"idle": True, "failure": "it serves no client"}
    except TlsSetupFailed:
        return server  # opening a session will report the reason
    except OSError as error:
        return replace(server, failure=f"it cannot be reached: {error}")
    server = replace(server, **found, withheld=withheld)
    return replace(server, failure="it is read-only") if server.mode == "read-only" else server


def _files(target: Target) -> dict[str, Any]:
    given = target.engine_options
    settings = {name: given.get(name) for name in ("ca", "certfile", "keyfile", "keyfile_password")}
    return {**settings, "verify_certs": given.get("verify_certs", True), "check_hostname": given["check_hostname"]}


def _connected(connection: HostConnection, server: Server, timeout: float) -> Server:
    if server.failure:
        return server  # opening a session would only time out
    try:
        connection.open(_REQUESTS_FOR_A_SESSION * timeout)
        start = time.monotonic()
        connection.sync(timeout)
        return replace(server, session=connection.granted, answer_seconds=time.monotonic() - start)
    except EngineRefused as error:
        return replace(server, failure=str(error), refused=True)
    except RequestFailed as error:
        return replace(server, failure=str(error))


# -- a lock ------------------------------------------------------------------------------------------------------------


def _tried(
    ensemble: Ensemble, connections: Sequence[HostConnection], connection: HostConnection, timeout: float
) -> Ensemble:
    """Take a lock through ``connection``, see whether the others know of it, and give it back."""
    namespace = ensemble.options.namespace
    name = f"{namespace}:{_OWN}-{secrets.token_hex(8)}" if namespace else f"{_OWN}-{secrets.token_hex(8)}"
    attempt = connection.session.attempt(Claim(name, f"{_OWN}:{secrets.randbits(63)}", connection.ttl))
    found: dict[str, Any] = {}
    missing: list[str] = []
    try:
        found["voters"] = _voters(connection, timeout)
        missing = _missing(connection, ensemble.base, timeout)
        run(connection.session.acquire(attempt, timeout))
        found["servers"] = _compared(ensemble.servers, connections, connection, name, timeout)
        run(connection.session.release(attempt, timeout))
        found["tried"] = True
    except (LockError, RequestFailed) as error:
        found["refusal"] = str(error)
    found["unlisted"] = _listed(connection, ensemble.base, timeout)
    _clean_up(connection, [connection.path(name), *missing], timeout)
    return replace(ensemble, **found)


def _voters(connection: HostConnection, timeout: float) -> int:
    try:
        members, _ = connection.get(_MEMBERS, timeout)
    except (NoNodeError, EngineRefused):
        return 0
    found = four_letter_commands.lines(members.decode("utf-8", "replace"), "=")
    return sum(name.startswith("server.") and ":observer" not in value for name, value in found.items())


def _missing(connection: HostConnection, base: str, timeout: float) -> list[str]:
    """The missing nodes of the path above the lock, lowest first."""
    missing = []
    while base:
        try:
            connection.get(base, timeout)
            break
        except NoNodeError:
            missing.append(base)
        except EngineRefused:
            break  # it exists, but this user may not read it
        base = base.rpartition("/")[0]
    return missing


def _compared(
    servers: Sequence[Server],
    connections: Sequence[HostConnection],
    connection: HostConnection,
    name: str,
    timeout: float,
) -> tuple[Server, ...]:
    """Whether each server knows of the lock, once it has caught up with its leader."""

    def knows(pair: tuple[Server, HostConnection]) -> Server:
        server, other = pair
        if server.failure or other is connection:
            return server
        try:
            other.sync(timeout)
            return replace(server, stranger=not other.children(connection.path(name), timeout))
        except (EngineRefused, RequestFailed):
            return server

    return run_concurrently(knows, zip(servers, connections, strict=True))


def _listed(connection: HostConnection, base: str, timeout: float) -> str:
    try:
        connection.children(base or "/", timeout)
    except (EngineRefused, RequestFailed) as error:
        return str(error)
    return ""


def _clean_up(connection: HostConnection, paths: Sequence[str], timeout: float) -> None:
    for path in paths:
        try:
            connection.delete(path, timeout)
        except (EngineRefused, RequestFailed):
            return  # other clients use it, or this user may not remove it; servers remove empty containers
