"""Examines one data server. A refused question is noted and is not fatal; nothing is left behind on the server."""

from __future__ import annotations

import re
import secrets
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Final

from redis.crc import key_slot

from holdfast._config.options import ClientOptions
from holdfast._runtime.blocking import run
from holdfast.cli.doctor.connection import Connection, Refused, pairs
from holdfast.cli.doctor.facts import RIGHTS, Clock, Node, Part, Way
from holdfast.cli.doctor.rights import lacking, needs
from holdfast.engines.base import RequestFailed
from holdfast.engines.redis.connections.blocking import BlockingChannel
from holdfast.engines.redis.connections.settings import Settings
from holdfast.engines.redis.dialect.keys import keys_of, listeners_of
from holdfast.engines.redis.scripts import PING
from holdfast.errors import EngineRefused

#: Requested one by one: servers before 7.0 accept one name at a time. None of them is a secret.
_CONFIG: Final = ("appendfsync", "maxclients", "min-replicas-max-lag", "min-replicas-to-write", "save", "timeout")
#: The sample with the shortest round trip is used: it is the most exact.
_CLOCK_SAMPLES: Final = 5
_NO_HELLO: Final = re.compile(r"NOPROTO|unknown command.*HELLO", re.IGNORECASE)
_NEEDS_RESP3: Final = "holdfast needs RESP3: Redis 6.2 or later, with no proxy in between that does not know HELLO"
_PROBE_TTL_MS: Final = 1000
_OWN: Final = "holdfast-doctor"
#: A node with one slot of 16384 is found with near certainty.
_TRIES_FOR_A_SLOT: Final = 100_000


def examine(
    settings: Settings, name: str, options: ClientOptions, part: Part, slots: Sequence[tuple[int, int]] | None = None
) -> Node:
    """The facts about one server; a Node with ``failure`` if it cannot be reached.

    ``slots``: the slots that it serves, if it is a node of a cluster.
    """
    node = Node(name, part)
    try:
        with Connection(settings, options.request_timeout) as connection:
            return _examined(connection, settings, node, options, slots)
    except EngineRefused as error:
        hint = f" ({_NEEDS_RESP3})" if _NO_HELLO.search(str(error)) else ""
        return replace(node, failure=f"{error}{hint}", refused=True)
    except RequestFailed as error:
        return replace(node, failure=str(error))


def _examined(
    connection: Connection,
    settings: Settings,
    node: Node,
    options: ClientOptions,
    slots: Sequence[tuple[int, int]] | None,
) -> Node:
    lock = _lock_name(options.namespace) if slots is None else _served_name(options.namespace, slots)
    withheld: dict[str, str] = {}

    @contextmanager
    def asking(question: str) -> Iterator[None]:
        try:
            yield
        except Refused as refusal:
            withheld[question] = str(refusal)

    found: dict[str, Any] = {"withheld": withheld}
    with asking("INFO"):
        found["info"] = _parsed(connection.ask("INFO"))
    with asking("CONFIG GET"):
        found["config"] = _config(connection)
    with asking("TIME"):
        found["clock"] = _clock(connection)
    node = replace(node, **found)
    writable = node.role != "slave" and lock is not None
    with asking(RIGHTS):
        name = lock or _lock_name(options.namespace)
        wanted = needs(name, options.namespace, clustered=slots is not None)
        found["lacks"] = lacking(connection, wanted, may_write=writable)
    found |= _script(connection)
    if writable and lock is not None:
        found["write_error"] = _write_error(connection, lock)
        found["way"] = None if found["write_error"] else _way(settings, lock, options.request_timeout)
    return replace(node, **found)


def _lock_name(namespace: str) -> str:
    """An unused name in the namespace."""
    return f"{namespace}:{_OWN}-{secrets.token_hex(8)}" if namespace else f"{_OWN}-{secrets.token_hex(8)}"


def _served_name(namespace: str, slots: Sequence[tuple[int, int]]) -> str | None:
    """A name that this node of a cluster serves; None if it has no slots, or so few that none is found."""
    for _ in range(_TRIES_FOR_A_SLOT if slots else 0):
        name = _lock_name(namespace)
        if any(first <= key_slot(name.encode()) <= last for first, last in slots):
            return name
    return None


def _parsed(info: str) -> dict[str, str]:
    """INFO's lines ``name:value``."""
    return dict(line.partition(":")[::2] for line in info.splitlines() if line and not line.startswith("#"))


def _config(connection: Connection) -> dict[str, str]:
    answers = connection.ask_all([("CONFIG", "GET", parameter) for parameter in _CONFIG])
    if refusals := [answer for answer in answers if isinstance(answer, Refused)]:
        raise refusals[0]
    return {name: value for answer in answers for name, value in pairs(answer).items()}


def _clock(connection: Connection) -> Clock:
    samples = []
    for _ in range(_CLOCK_SAMPLES):
        before, start = time.time(), time.monotonic()
        seconds, microseconds = connection.ask("TIME")
        half = (time.monotonic() - start) / 2
        samples.append(Clock(int(seconds) + int(microseconds) / 1e6 - (before + half), half))
    return min(samples, key=lambda clock: clock.uncertainty)


def _script(connection: Connection) -> dict[str, Any]:
    try:
        connection.ask("EVAL", PING.source, 0)
        start = time.monotonic()
        connection.ask("EVALSHA", PING.sha, 0)
        return {"script_seconds": time.monotonic() - start}
    except Refused as refusal:
        return {"script_error": str(refusal)}


def _write_error(connection: Connection, lock: str) -> str:
    """The server's error for a small write: OOM, READONLY, MISCONF, NOREPLICAS … Missing rights are ignored here."""
    key = keys_of(lock).metadata
    try:
        connection.ask("SET", key, "1", "PX", _PROBE_TTL_MS)
        connection.ask("DEL", key)
    except Refused as refusal:
        return "" if refusal.code == "NOPERM" else str(refusal)
    return ""


def _way(settings: Settings, lock: str, timeout: float) -> Way | None:
    """How the engine is woken by this server: it tracks a key of its own, deletes it, and expects the push."""
    channel = BlockingChannel(settings)
    watch = channel.watch()
    keys = keys_of(lock)
    try:
        run(watch.arm(keys.name, keys.channel, timeout))
        way: Way | None = channel.way.value if channel.way is not None else None
        if way != "tracking":  # the watch has announced itself, or tried to subscribe
            run(channel.command(("DEL", str(listeners_of(keys.channel))), timeout))
        return way
    except (EngineRefused, RequestFailed):
        return None  # the missing right, or the write error, is reported elsewhere
    finally:
        watch.close()
        run(channel.close())
