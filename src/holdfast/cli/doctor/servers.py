"""Servers: what people call them, and how several are asked at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

from holdfast.cli.doctor.facts import host_port
from holdfast.engines.redis.settings import Settings

_AT_ONCE: Final = 16

T = TypeVar("T")
R = TypeVar("R")


def name_of(server: Settings) -> str:
    """host:port, or the path of the socket."""
    keywords = server.keywords
    if "path" in keywords:
        return str(keywords["path"])
    return host_port(keywords.get("host", "localhost"), keywords.get("port", 6379))


def side_by_side(ask: Callable[[T], R], servers: Iterable[T]) -> tuple[R, ...]:
    """``ask`` each, all at once: a server that does not answer costs its time-out once, not once for each."""
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        return tuple(pool.map(ask, servers))
