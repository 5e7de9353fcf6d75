"""Options of the Redis engines and of redis-py: their names, and which of them go together. Pure: without redis-py.

The lists are those of redis-py 7 and 8; a test compares them with the installed version.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from holdfast._config import parameters
from holdfast.errors import UsageError

#: Parameters of a redis:// URL: texts that redis-py's URL parser converts or passes on.
URL_OPTIONS: Final = frozenset(
    {
        "client_name", "db", "lib_name", "lib_version", "password", "protocol", "socket_connect_timeout",
        "socket_keepalive", "socket_read_size", "socket_timeout", "ssl_ca_certs", "ssl_ca_data", "ssl_ca_path",
        "ssl_cert_reqs", "ssl_certfile", "ssl_check_hostname", "ssl_ciphers", "ssl_exclude_verify_flags",
        "ssl_include_verify_flags", "ssl_keyfile", "ssl_min_version", "ssl_password", "username",
    }
)  # fmt: skip

#: Settings of redis-py's connections that only Python can express, in addition to those of the URL.
OBJECT_OPTIONS: Final = frozenset(
    {
        "credential_provider", "driver_info", "redis_connect_func", "socket_keepalive_options", "socket_type",
        "ssl_ocsp_context", "ssl_ocsp_expected_cert", "ssl_validate_ocsp", "ssl_validate_ocsp_stapled",
    }
)  # fmt: skip

#: Settings of redis-py's pools, retries and decoding, which holdfast does not use. They are accepted, because a URL or
#: a dict of settings is often shared with other users of the same server, and removed, because connections refuse them,
#: or would obey: a retried request is a late duplicate.
WITHOUT_EFFECT: Final = frozenset(
    {
        "decode_responses", "encoding", "encoding_errors", "health_check_interval", "legacy_responses",
        "max_connections", "retry", "retry_on_error", "retry_on_timeout", "timeout",
    }
)  # fmt: skip

#: Not known to a connection over a unix socket.
TCP_ONLY: Final = frozenset({"socket_keepalive", "socket_keepalive_options", "socket_type"})

#: Engine → its options beside the driver's settings, in the URL and as keywords: for the engine, not its connections.
ENGINE_OPTIONS: Final[Mapping[str, frozenset[str]]] = {
    "sentinel": frozenset({"sentinel_username", "sentinel_password"}),
    "cluster": frozenset({"sharded_pubsub"}),
}

#: How releases are published on a cluster: as Redisson chooses, by SPUBLISH, by PUBLISH, or by both.
SHARDED_PUBSUB: Final = ("auto", "on", "off", "both")

#: Names whose values are never shown, and are compared exactly.
SECRET: Final = frozenset({"password", "sentinel_password", "ssl_password", "credential_provider"})

#: Scheme → the scheme for the same servers by TLS.
BY_TLS: Final = {
    "redis": "rediss",
    "unix": "rediss",
    "redis+sentinel": "rediss+sentinel",
    "redis+cluster": "rediss+cluster",
    "redlock": "redlocks",
}


def beside_url(engine: str, scheme: str, keywords: Mapping[str, Any], given: Mapping[str, str]) -> dict[str, Any]:
    """The engine's options beside its target. ``given`` are the parameters of the URL.

    They are the keywords, without those that have no effect, and those parameters of the URL that are for the engine
    itself: the driver's are part of the target.
    """
    parameters.refuse_unknown_options(keywords, option_names(engine))
    used = {name: value for name, value in keywords.items() if name not in WITHOUT_EFFECT}
    for name in used.keys() & given.keys():
        text, value = given[name], used[name]
        if str(value) != text and (name in SECRET or str(value).lower() != text.lower()):
            raise parameters.contradiction(name)
    _check_together(engine, scheme, {**given, **used})
    try:
        extra = ENGINE_OPTIONS.get(engine, frozenset())
        from_url = _normal({name: given[name] for name in extra & given.keys()})
    except ValueError as error:
        raise UsageError(f"URL parameter {error}") from None
    return {**_normal(used), **from_url}


def beside_client(engine: str, keywords: Mapping[str, Any]) -> dict[str, Any]:
    """The engine's options beside an existing client, which has all settings of connections itself."""
    allowed = frozenset({"sharded_pubsub"} if engine == "cluster" else ())
    if others := sorted(keywords.keys() - allowed):
        raise UsageError(f"connection settings come from the client object; set these on it: {', '.join(others)}")
    return _normal(keywords)


def option_names(engine: str) -> frozenset[str]:
    """The names of the engine's options."""
    return URL_OPTIONS | OBJECT_OPTIONS | WITHOUT_EFFECT | ENGINE_OPTIONS.get(engine, frozenset())


def _check_together(engine: str, scheme: str, every: Mapping[str, Any]) -> None:
    """Refuse options that exclude each other or the scheme; ``every`` are those of the URL and of the keywords."""
    if "credential_provider" in every and every.keys() & {"username", "password"}:
        raise UsageError("give either credential_provider or username and password, not both")
    if "sentinel_username" in every and "sentinel_password" not in every:
        raise UsageError("sentinel_username is given without sentinel_password; add it")
    if scheme in BY_TLS and (tls := sorted(name for name in every if name.startswith("ssl_"))):
        by_tls = BY_TLS[scheme]
        raise UsageError(f"{tls[0]} is a setting of TLS, and {scheme}:// does not use it; write {by_tls}://")
    if scheme == "unix" and (tcp := sorted(every.keys() & TCP_ONLY)):
        raise UsageError(f"{tcp[0]} is a setting of TCP, and unix:// does not use it")
    if engine == "cluster" and str(every.get("db", 0)) != "0":
        raise UsageError("a Redis Cluster has only database 0; remove the number from the URL or the option db")


def _normal(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options as the engine expects them; ValueError or TypeError for a wrong value."""
    normal = dict(options)
    if "sharded_pubsub" in normal:
        mode, modes = normal["sharded_pubsub"], ", ".join(SHARDED_PUBSUB)
        if not isinstance(mode, str):
            raise TypeError(f"sharded_pubsub is a {type(mode).__name__}: give one of {modes}")
        normal["sharded_pubsub"] = mode.strip().lower()
        if normal["sharded_pubsub"] not in SHARDED_PUBSUB:
            raise ValueError(f"sharded_pubsub is none of {modes}")
    return normal
