"""The keywords of ``connect`` and ``configure``, for type checkers: one TypedDict for each engine family.

A URL is a ``str``, so a type checker cannot know its engine: ``connect`` takes the options of every family
(:class:`ConnectOptions`), and the parser refuses those of another engine at run time. A program that keeps its options
in a dict can annotate it with the family. There are no overloads: with them a checker answers a misspelt keyword with
the list of all keywords instead of the nearest. tests/typing compares the keys with what the parsers accept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypedDict

if TYPE_CHECKING:
    import os
    import ssl

    import redis
    import redis.asyncio
    from redis.credentials import CredentialProvider

    from holdfast._config.durations import Duration
    from holdfast.observer.events import Observer

    #: An existing client of redis-py; its settings are used, its connections are not.
    RedisClient: TypeAlias = redis.Redis | redis.RedisCluster | redis.asyncio.Redis | redis.asyncio.RedisCluster

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

ShardedPubSub: TypeAlias = Literal["auto", "on", "off", "both"]


class CommonOptions(TypedDict, total=False):
    """The options that every engine takes."""

    label: str | None
    namespace: str
    observer: Observer | None
    renew: bool
    replicas: int
    request_timeout: Duration
    token_ttl: Duration | None
    ttl: Duration
    unavailable_after: Duration


class MemoryOptions(CommonOptions, total=False):
    """The options of ``memory:``."""


class SqliteOptions(CommonOptions, total=False):
    """The options of ``sqlite:``."""


class _Credentials(TypedDict, total=False):
    """Redis and ZooKeeper share these names. ZooKeeper takes no None."""

    username: str | None
    password: str | None


class _RedisConnection(TypedDict, total=False):
    """Settings of redis-py's connections."""

    client_name: str | None
    credential_provider: CredentialProvider | None
    db: int | str
    driver_info: Any
    lib_name: str | None
    lib_version: str | None
    protocol: int | str | None
    redis_connect_func: Callable[..., Any] | None
    socket_connect_timeout: float | None
    socket_keepalive: bool | None
    socket_keepalive_options: Mapping[int, int | bytes] | None
    socket_read_size: int
    socket_timeout: float | None
    socket_type: int
    ssl_ca_certs: str | None
    ssl_ca_data: str | bytes | None
    ssl_ca_path: str | None
    ssl_cert_reqs: str | ssl.VerifyMode | None
    ssl_certfile: str | None
    ssl_check_hostname: bool
    ssl_ciphers: str | None
    ssl_exclude_verify_flags: Sequence[ssl.VerifyFlags] | None
    ssl_include_verify_flags: Sequence[ssl.VerifyFlags] | None
    ssl_keyfile: str | None
    ssl_min_version: ssl.TLSVersion | None
    ssl_ocsp_context: Any
    ssl_ocsp_expected_cert: str | bytes | None
    ssl_password: str | None
    ssl_validate_ocsp: bool
    ssl_validate_ocsp_stapled: bool


class _RedisWithoutEffect(TypedDict, total=False):
    """How redis-py pools, retries and decodes: accepted in a shared dict of settings, and ignored."""

    decode_responses: bool
    encoding: str
    encoding_errors: str
    health_check_interval: float
    legacy_responses: bool
    max_connections: int | None
    retry: Any
    retry_on_error: Iterable[type[Exception]] | None
    retry_on_timeout: bool
    timeout: float | None


class RedisOptions(CommonOptions, _Credentials, _RedisConnection, _RedisWithoutEffect, total=False):
    """The options of ``redis:``, ``rediss:``, ``unix:``, ``redlock:`` and ``redlocks:``."""


class _Sentinel(TypedDict, total=False):
    sentinel_username: str
    sentinel_password: str


class SentinelOptions(RedisOptions, _Sentinel, total=False):
    """The options of ``redis+sentinel:`` and ``rediss+sentinel:``."""


class _Cluster(TypedDict, total=False):
    sharded_pubsub: ShardedPubSub


class ClusterOptions(RedisOptions, _Cluster, total=False):
    """The options of ``redis+cluster:`` and ``rediss+cluster:``."""


class _ZooKeeper(TypedDict, total=False):
    acl: Literal["open", "creator"]
    auth_data: Iterable[tuple[str, str]]
    ca: str | os.PathLike[str]
    certfile: str | os.PathLike[str]
    check_hostname: bool
    default_acl: Sequence[Any]
    keyfile: str | os.PathLike[str]
    keyfile_password: str
    randomize_hosts: bool
    sasl_mechanism: Literal["DIGEST-MD5", "GSSAPI"]
    sasl_options: Mapping[str, Any]
    sasl_password: str
    sasl_service: str
    sasl_username: str
    tick: Duration
    use_ssl: bool
    verify_certs: bool


class ZooKeeperOptions(CommonOptions, _Credentials, _ZooKeeper, total=False):
    """The options of ``zookeeper:``."""


class ConnectOptions(
    CommonOptions,
    _Credentials,
    _RedisConnection,
    _RedisWithoutEffect,
    _Sentinel,
    _Cluster,
    _ZooKeeper,
    total=False,
):
    """The options beside a URL, which may name any engine, or beside nothing: then the configured default does."""

    #: Instead of a URL: a profile of the settings file.
    profile: str | None
