"""Names of servers."""

from __future__ import annotations

from holdfast.cli.doctor.facts import host_port
from holdfast.engines.redis.connections.settings import Settings


def name_of(server: Settings) -> str:
    """host:port, or the path of the socket."""
    keywords = server.keywords
    if "path" in keywords:
        return str(keywords["path"])
    return host_port(keywords.get("host", "localhost"), keywords.get("port", 6379))
