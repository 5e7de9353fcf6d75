"""The options of the Redis engines, for type checkers. A test compares the keys with what the parsers accept."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypedDict

from holdfast._config.common_options import CommonOptions, Credentials

if TYPE_CHECKING:
    import ssl

    import redis
    import redis.asyncio
    from redis.credentials import CredentialProvider

    #: An existing client of redis-py; its settings are used, its connections are not.
    RedisClient: TypeAlias = redis.Redis | redis.RedisCluster | redis.asyncio.Redis | redis.asyncio.RedisCluster

ShardedPubSub: TypeAlias = Literal["auto", "on", "off", "both"]


class _Connection(TypedDict, total=False):
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


class _WithoutEffect(TypedDict, total=False):
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


class RedisOptions(CommonOptions, Credentials, _Connection, _WithoutEffect, total=False):
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


class RedisOwnOptions(_Connection, _WithoutEffect, _Sentinel, _Cluster, total=False):
    """The options of all Redis engines, without those of :mod:`holdfast._config.common_options`."""
