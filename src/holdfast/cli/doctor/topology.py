"""From a target to facts: which servers it means, and each of them examined."""

from __future__ import annotations

from typing import Any

from holdfast.cli.doctor import clusters, sentinels
from holdfast.cli.doctor.concurrently import side_by_side
from holdfast.cli.doctor.examine import examine
from holdfast.cli.doctor.facts import Facts, Part
from holdfast.cli.doctor.servers import name_of
from holdfast.engines.redis import settings
from holdfast.engines.redis.settings import Settings
from holdfast.errors import UsageError
from holdfast.options import Target


def gather(target: Target) -> Facts:
    """All that can be found out about the servers of ``target``. Servers that do not answer are facts, not errors."""
    keywords = {name: value for name, value in target.engine_options.items() if name != "sharded_pubsub"}
    if target.engine == "sentinel":
        return sentinels.gather(target.target, keywords, target.options)
    servers = [_settings(one, keywords) for one in _several(target.target)]
    if target.engine == "cluster":
        return clusters.gather(servers, target.options)
    part: Part = "redlock" if target.engine == "redlock" else "server"
    nodes = side_by_side(lambda server: examine(server, name_of(server), target.options, part), servers)
    return Facts(target.engine, target.options, nodes)


def _several(target: Any) -> tuple[Any, ...]:
    return target if isinstance(target, tuple) else (target,)


def _settings(target: Any, keywords: dict[str, Any]) -> Settings:
    if isinstance(target, str):
        return settings.from_url(target, keywords)
    if hasattr(target, "connection_pool"):
        return settings.from_client(target)
    raise UsageError(f"the doctor needs a URL, not a {type(target).__qualname__}")
