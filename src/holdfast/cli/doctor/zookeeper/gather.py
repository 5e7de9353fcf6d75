"""Finding out about an ensemble: each host of the URL by itself, then a lock under the base, as a rehearsal.

Whatever is refused is noted, not fatal. Nothing is left behind: the lock's node goes with its release, and what was
made above it is removed again.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import Any, Final

from kazoo.exceptions import NoNodeError

from holdfast._runtime.blocking import run
from holdfast.cli.doctor.concurrently import side_by_side
from holdfast.cli.doctor.facts import host_port
from holdfast.cli.doctor.zookeeper import four_letter_commands
from holdfast.cli.doctor.zookeeper.facts import Ensemble, Server
from holdfast.cli.doctor.zookeeper.host_session import Visit
from holdfast.engines.base import Claim, RequestFailed
from holdfast.engines.zookeeper.handler import NoContext, tls_context
from holdfast.errors import EngineRefused, LockError
from holdfast.options import Target

_OWN: Final = "holdfast-doctor"
#: Where the servers keep who belongs to them. Everybody may read it.
_MEMBERS: Final = "/zookeeper/config"
#: A session is a vote of the majority, and the way to it a handshake or two.
_REQUESTS_FOR_A_SESSION: Final = 2


def gather(target: Target) -> Ensemble:
    """All that can be found out. Servers that do not answer are facts, not errors."""
    hosts = target.target.hosts
    told = side_by_side(lambda host: _told(target, host), hosts)
    ensemble = Ensemble(
        target.options,
        target.engine_options["tick"],
        target.target.base,
        target.engine_options.get("acl") == "open",
        told,
    )
    with ExitStack() as leaving:
        visits = [leaving.enter_context(Visit(target, host)) for host in hosts]
        timeout = target.options.request_timeout
        servers = side_by_side(lambda pair: _visited(*pair, timeout), zip(visits, told, strict=True))
        served = [visit for visit, server in zip(visits, servers, strict=True) if not server.failure]
        ensemble = replace(ensemble, servers=servers)
        if not served:
            return ensemble
        first = served[0]
        if first.granted != first.ttl:  # with that ttl every lock is refused; what else there is can still be seen
            first = leaving.enter_context(first.again(first.granted))
            first.open(_REQUESTS_FOR_A_SESSION * timeout)
        return _rehearsed(ensemble, visits, first, timeout)


def _told(target: Target, host: tuple[str, int]) -> Server:
    """By four-letter words. No session is needed for them, so a server without a majority tells, too."""
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
        found |= {"idle": True, "failure": "it serves nobody"}
    except NoContext:
        return server  # the session will say why
    except OSError as error:
        return replace(server, failure=f"it cannot be reached: {error}")
    server = replace(server, **found, withheld=withheld)
    return replace(server, failure="it is read-only") if server.mode == "read-only" else server


def _files(target: Target) -> dict[str, Any]:
    given = target.engine_options
    settings = {name: given.get(name) for name in ("ca", "certfile", "keyfile", "keyfile_password")}
    return {**settings, "verify_certs": given.get("verify_certs", True), "check_hostname": given["check_hostname"]}


def _visited(visit: Visit, server: Server, timeout: float) -> Server:
    if server.failure:
        return server  # a session would only wait for its time-out
    try:
        visit.open(_REQUESTS_FOR_A_SESSION * timeout)
        start = time.monotonic()
        visit.sync(timeout)
        return replace(server, session=visit.granted, answer_seconds=time.monotonic() - start)
    except EngineRefused as error:
        return replace(server, failure=str(error), refused=True)
    except RequestFailed as error:
        return replace(server, failure=str(error))


# -- a lock ------------------------------------------------------------------------------------------------------------


def _rehearsed(ensemble: Ensemble, visits: Sequence[Visit], visit: Visit, timeout: float) -> Ensemble:
    """Take a lock through ``visit``, see whether the others know of it, and give it back."""
    namespace = ensemble.options.namespace
    name = f"{namespace}:{_OWN}-{secrets.token_hex(8)}" if namespace else f"{_OWN}-{secrets.token_hex(8)}"
    claim = Claim(name, f"{_OWN}:{secrets.randbits(63)}", visit.ttl)
    found: dict[str, Any] = {}
    missing: list[str] = []
    try:
        found["voters"] = _voters(visit, timeout)
        missing = _missing(visit, ensemble.base, timeout)
        run(visit.session.acquire(claim, timeout))
        found["servers"] = _compared(ensemble.servers, visits, visit, name, timeout)
        run(visit.session.release(claim, timeout))
        found["rehearsed"] = True
    except (LockError, RequestFailed) as error:
        found["refusal"] = str(error)
    found["unlisted"] = _listed(visit, ensemble.base, timeout)
    _clean_up(visit, [visit.path(name), *missing], timeout)
    return replace(ensemble, **found)


def _voters(visit: Visit, timeout: float) -> int:
    try:
        members, _ = visit.get(_MEMBERS, timeout)
    except (NoNodeError, EngineRefused):
        return 0
    found = four_letter_commands.lines(members.decode("utf-8", "replace"), "=")
    return sum(name.startswith("server.") and ":observer" not in value for name, value in found.items())


def _missing(visit: Visit, base: str, timeout: float) -> list[str]:
    """What is not there of the path above the lock, lowest first."""
    missing = []
    while base:
        try:
            visit.get(base, timeout)
            break
        except NoNodeError:
            missing.append(base)
        except EngineRefused:
            break  # there, and not ours to read
        base = base.rpartition("/")[0]
    return missing


def _compared(
    servers: Sequence[Server], visits: Sequence[Visit], visit: Visit, name: str, timeout: float
) -> tuple[Server, ...]:
    """Whether each server knows of the lock, once it has caught up with its leader."""

    def knows(pair: tuple[Server, Visit]) -> Server:
        server, other = pair
        if server.failure or other is visit:
            return server
        try:
            other.sync(timeout)
            return replace(server, stranger=not other.children(visit.path(name), timeout))
        except (EngineRefused, RequestFailed):
            return server

    return side_by_side(knows, zip(servers, visits, strict=True))


def _listed(visit: Visit, base: str, timeout: float) -> str:
    try:
        visit.children(base or "/", timeout)
    except (EngineRefused, RequestFailed) as error:
        return str(error)
    return ""


def _clean_up(visit: Visit, paths: Sequence[str], timeout: float) -> None:
    for path in paths:
        try:
            visit.delete(path, timeout)
        except (EngineRefused, RequestFailed):
            return  # others use it by now, or it is not ours to remove: the servers do, for they are containers
