"""Names of what ``connect`` takes, per engine, known without importing any driver; and the nearest for a wrong one.

The Redis lists are those of redis-py 7 and 8, the ZooKeeper lists those of kazoo 2.11; tests compare them with the
installed versions.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Iterable, Mapping
from typing import Final

#: Our own keywords: those of ``connect``, of a URL's query, of HOLDFAST_* and of the settings file.
OWN: Final = frozenset(
    {"label", "namespace", "renew", "replicas", "request_timeout", "token_ttl", "ttl", "unavailable_after"}
)

#: Our own keywords that only Python can express: no text names a function.
PYTHON_ONLY: Final = frozenset({"observer"})

#: What a redis:// URL may carry in its query: texts that redis-py's URL parser converts or passes on.
REDIS_URL: Final = frozenset(
    {
        "client_name", "db", "lib_name", "lib_version", "password", "protocol", "socket_connect_timeout",
        "socket_keepalive", "socket_read_size", "socket_timeout", "ssl_ca_certs", "ssl_ca_data", "ssl_ca_path",
        "ssl_cert_reqs", "ssl_certfile", "ssl_check_hostname", "ssl_ciphers", "ssl_exclude_verify_flags",
        "ssl_include_verify_flags", "ssl_keyfile", "ssl_min_version", "ssl_password", "username",
    }
)  # fmt: skip

#: Settings of redis-py's connections that only Python can express, in addition to those of the URL.
REDIS_OBJECTS: Final = frozenset(
    {
        "credential_provider", "driver_info", "redis_connect_func", "socket_keepalive_options", "socket_type",
        "ssl_ocsp_context", "ssl_ocsp_expected_cert", "ssl_validate_ocsp", "ssl_validate_ocsp_stapled",
    }
)  # fmt: skip

#: How redis-py pools, retries and decodes: holdfast does these its own way. Accepted, because a URL or a dict of
#: settings is often shared with other users of the same server, and taken out, because connections do not know them
#: (or would obey: a retried request is a late duplicate).
REDIS_WITHOUT_EFFECT: Final = frozenset(
    {
        "decode_responses", "encoding", "encoding_errors", "health_check_interval", "legacy_responses",
        "max_connections", "retry", "retry_on_error", "retry_on_timeout", "timeout",
    }
)  # fmt: skip

#: Not known to a connection over a unix socket.
REDIS_TCP_ONLY: Final = frozenset({"socket_keepalive", "socket_keepalive_options", "socket_type"})

#: What a zookeeper:// URL may carry in its query, beside our own keywords. kazoo's names, but for digest and SASL
#: credentials, of which it takes lists and dicts, and for ``acl`` and ``tick``.
ZOOKEEPER_URL: Final = frozenset(
    {
        "acl", "ca", "certfile", "check_hostname", "keyfile", "keyfile_password", "password", "randomize_hosts",
        "sasl_mechanism", "sasl_password", "sasl_service", "sasl_username", "tick", "use_ssl", "username",
        "verify_certs",
    }
)  # fmt: skip

#: Settings of kazoo that only Python can express.
ZOOKEEPER_OBJECTS: Final = frozenset({"auth_data", "default_acl", "sasl_options"})

#: Settings of kazoo that are not the user's here, and what to do instead.
ZOOKEEPER_REFUSED: Final[Mapping[str, str]] = {
    "client_id": "holdfast opens sessions of its own and joins none",
    "command_retry": "holdfast repeats requests itself, since a repeated create is a second contender",
    "connection_retry": "holdfast reconnects itself, for as long as unavailable_after",
    "handler": "holdfast brings its own",
    "hosts": "write them in the URL",
    "logger": "use the logger 'holdfast.zookeeper'",
    "read_only": "a lock needs a server that takes writes",
    "timeout": "the session's time-out is ttl",
}

#: Engine → what it takes beside the driver's settings, in the URL and as keywords: for the engine itself, not for its
#: connections.
EXTRA: Final[Mapping[str, frozenset[str]]] = {
    "sentinel": frozenset({"sentinel_username", "sentinel_password"}),
    "cluster": frozenset({"sharded_pubsub"}),
}

#: How releases are published on a cluster: as Redisson chooses, by SPUBLISH, by PUBLISH, or by both.
SHARDED_PUBSUB: Final = ("auto", "on", "off", "both")

#: Names never shown with their values, nor compared in an error.
SECRET: Final = frozenset({"password", "sentinel_password", "ssl_password", "credential_provider"})

#: How a text says yes or no.
BOOLS: Final = dict.fromkeys(("1", "true", "yes", "on"), True) | dict.fromkeys(("0", "false", "no", "off"), False)

_IDENTIFIER: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}")


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name that ``name`` was probably meant to be."""
    return next(iter(difflib.get_close_matches(name.lower().replace("-", "_"), list(known), n=1)), None)


def unknown(kind: str, name: str, known: Collection[str]) -> str:
    """The sentence about an unknown ``name``: with the nearest known one, else with all of them.

    A name that does not look like one is not repeated: it may be the second half of an unescaped password.
    """
    if not _IDENTIFIER.fullmatch(name):
        return f"a {kind} has no valid name; '?', '#', '/' and '@' in user info must be percent-encoded"
    if name in PYTHON_ONLY:
        return f"{kind} {name!r} is a Python object: give it to connect() as a keyword"
    for engine, names in EXTRA.items():
        if name in names:
            return f"{kind} {name!r} is for redis+{engine}:// only"
    guess = nearest(name, known)
    hint = f"did you mean {guess!r}?" if guess else f"known: {', '.join(sorted(known))}"
    return f"unknown {kind} {name!r}; {hint}"
