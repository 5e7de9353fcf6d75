"""The keywords of ``connect`` and ``configure``, for type checkers: those of all engines together.

A URL is a ``str``, so a type checker cannot know its engine: ``connect`` takes the options of every engine
(:class:`ConnectOptions`), and the parser refuses those of another engine at run time. A program that keeps its options
in a dict can annotate it with the engine's own type. There are no overloads: with them a checker answers a misspelt
keyword with the list of all keywords instead of the nearest.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from holdfast._config.common_options import CommonOptions, Credentials
from holdfast.engines.memory.typed_options import MemoryOptions
from holdfast.engines.redis.typed_options import ClusterOptions, RedisOptions, RedisOwnOptions, SentinelOptions
from holdfast.engines.sqlite.typed_options import SqliteOptions
from holdfast.engines.zookeeper.typed_options import ZooKeeperOptions, ZooKeeperOwnOptions

if TYPE_CHECKING:
    from holdfast.engines.redis.typed_options import RedisClient

    #: A client of a driver, given instead of a URL.
    DriverClient: TypeAlias = RedisClient

__all__ = [
    "ClusterOptions",
    "CommonOptions",
    "ConnectOptions",
    "MemoryOptions",
    "RedisOptions",
    "SentinelOptions",
    "SqliteOptions",
    "ZooKeeperOptions",
]


class ConnectOptions(CommonOptions, Credentials, RedisOwnOptions, ZooKeeperOwnOptions, total=False):
    """The options beside a URL, which may name any engine, or beside nothing: then the configured default does."""

    #: Instead of a URL: a profile of the settings file.
    profile: str | None
