"""What the sentinels say, each by itself; and the servers that they name."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from holdfast._core.sentinel_target import SentinelTarget
from holdfast.cli.doctor.concurrently import side_by_side
from holdfast.cli.doctor.connection import Line, Refused, pairs
from holdfast.cli.doctor.examine import examine
from holdfast.cli.doctor.facts import Facts, Node, Part, Sentinel, host_port
from holdfast.cli.doctor.servers import name_of
from holdfast.engines.base import RequestFailed
from holdfast.engines.redis import settings
from holdfast.engines.redis.settings import Settings
from holdfast.errors import EngineRefused, UsageError
from holdfast.options import ClientOptions

Address = tuple[str, int]

_CREDENTIALS: Final = frozenset({"credential_provider", "password", "username"})
_NOT_FOR_SENTINELS: Final = _CREDENTIALS | {"client_name", "db", "redis_connect_func"}


def gather(target: Any, keywords: dict[str, Any], options: ClientOptions) -> Facts:
    """Ask each sentinel, then examine every data node that any of them names."""
    if not isinstance(target, SentinelTarget):
        raise UsageError("the doctor needs a URL: redis+sentinel://h1:26379,h2:26379,h3:26379/MASTER")
    own = {name: keywords.pop(f"sentinel_{name}", None) for name in ("username", "password")}
    data = settings.from_url(target.url, keywords)
    ways = [_ways(data.at(*address), own) for address in target.sentinels]
    answers = side_by_side(lambda sentinel: _ask(sentinel, target.master, options.request_timeout), ways)
    parts: dict[Address, Part] = {}
    for _, found in answers:
        for address, part in found.items():
            # A master in the eyes of one sentinel is examined as one; that they disagree is said elsewhere.
            parts[address] = "master" if "master" in (part, parts.get(address)) else "replica"

    def examined(item: tuple[Address, Part]) -> Node:
        (host, port), part = item
        return examine(data.at(host, port), host_port(host, port), options, part)

    nodes = side_by_side(examined, sorted(parts.items(), key=lambda item: item[1]))
    return Facts("sentinel", options, nodes, tuple(sentinel for sentinel, _ in answers))


def _ways(sentinel: Settings, own: dict[str, str | None]) -> list[Settings]:
    """As whom to ask it, in the engine's order: as its own user, or as nobody and then as the data nodes' user."""
    common = {name: value for name, value in sentinel.keywords.items() if name not in _NOT_FOR_SENTINELS}
    shared = {name: value for name, value in sentinel.keywords.items() if name in _CREDENTIALS}
    given = {name: value for name, value in own.items() if value}
    users: list[dict[str, Any]] = [given] if given else [{}, shared] if shared else [{}]
    return [replace(sentinel, keywords=common | user) for user in users]


def _ask(ways: list[Settings], master: str, timeout: float) -> tuple[Sentinel, dict[Address, Part]]:
    """One sentinel's view, and the data nodes that it knows."""
    failure = ""
    for way in ways:
        try:
            with Line(way, timeout) as line:
                return _view(line, name_of(way), master)
        except EngineRefused as error:
            failure = str(error)  # perhaps it lets another user in
        except (Refused, RequestFailed) as error:
            failure = str(error)
            break
    return Sentinel(name_of(ways[0]), failure=failure), {}


def _view(line: Line, name: str, master: str) -> tuple[Sentinel, dict[Address, Part]]:
    try:
        about = pairs(line.ask("SENTINEL", "MASTER", master))
        replicas = [pairs(row) for row in line.ask("SENTINEL", "REPLICAS", master)]
    except Refused as refusal:
        if refusal.code != "NOPERM":
            raise
        return _least_view(line, name, master, str(refusal))
    address = (about["ip"], int(about["port"]))
    found: dict[Address, Part] = {address: "master"}
    found |= {(row["ip"], int(row["port"])): "replica" for row in replicas}
    sentinel = Sentinel(
        name,
        master=host_port(*address),
        flags=frozenset(about["flags"].split(",")),
        quorum=int(about["quorum"]),
        sentinels=int(about["num-other-sentinels"]) + 1,
        replicas=len(replicas),
        ckquorum=_verdict(line, master),
    )
    return sentinel, found


def _least_view(line: Line, name: str, master: str, why: str) -> tuple[Sentinel, dict[Address, Part]]:
    """What a user may ask who may do no more than find the master, as the engine does."""
    place = line.ask("SENTINEL", "GET-MASTER-ADDR-BY-NAME", master)
    if place is None:
        return Sentinel(name, failure=f"{name} knows no master {master!r}"), {}
    host, port = place
    return Sentinel(name, master=host_port(host, port), withheld=why), {(host, int(port)): "master"}


def _verdict(line: Line, master: str) -> str:
    try:
        line.ask("SENTINEL", "CKQUORUM", master)
    except Refused as refusal:
        return str(refusal) if refusal.code == "NOQUORUM" else ""
    return ""
