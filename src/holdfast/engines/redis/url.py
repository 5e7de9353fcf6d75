"""URLs of Redis: one server, a master behind sentinels, a cluster, independent masters.

A URL with several hosts is read as one URL for each of them, so that user info, database and parameters apply to all.
No error repeats a part of the URL that could be half a password.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple
from urllib.parse import unquote

from holdfast._config.url_parts import ENCODE, ParsedURL, Parts, one_server, servers, sort_query
from holdfast.engines.redis import options
from holdfast.engines.redis.options import option_names
from holdfast.errors import UsageError

__all__ = ["SentinelTarget", "option_names", "parse"]

_AFTER_SCHEME: Final = {
    "sentinel": "h1:26379,h2:26379,h3:26379/MASTER",
    "cluster": "h1:7000,h2:7001",
    "redlock": "h1:6379,h2:6379,h3:6379",
}


class SentinelTarget(NamedTuple):
    """A master known by name, and the sentinels that know its address."""

    master: str
    #: Host (decoded, an IPv6 address without brackets) and port.
    sentinels: tuple[tuple[str, int], ...]
    #: How to connect to the master: user info, database and the driver's parameters. Its host and port are those of
    #: the first sentinel, as placeholders for the address that a sentinel reports.
    url: str

    def __repr__(self) -> str:  # the URL may contain a password
        return f"<master {self.master!r} of {', '.join(f'{host}:{port}' for host, port in self.sentinels)}>"


class _Read(NamedTuple):
    """The parameters of one URL."""

    own: dict[str, str]
    given: dict[str, str]
    #: The query that is left for the driver, with its '?'.
    query: str


def parse(engine: str, parts: Parts, keywords: Mapping[str, Any]) -> ParsedURL:
    """The target and options of a URL of one of Redis's schemes, or UsageError with the remedy.

    The target is the URL for the driver, without holdfast's own parameters; for a cluster or Redlock a tuple with such
    a URL for each host; for sentinels a SentinelTarget.
    """
    target, read = _one_server(parts) if engine == "redis" else _several_servers(engine, parts)
    checked = options.beside_url(engine, parts.scheme, keywords, read.given)
    return ParsedURL(engine, target, read.own, read.given, checked)


def _several_servers(engine: str, parts: Parts) -> tuple[tuple[str, ...] | SentinelTarget, _Read]:
    user_info, at, _ = parts.netloc.rpartition("@")
    default_port = 26379 if engine == "sentinel" else 6379
    named = servers(parts.netloc, default_port, f"{parts.scheme}://{_AFTER_SCHEME[engine]}")
    master, database = _master_and_database(parts) if engine == "sentinel" else ("", parts.path.strip("/"))
    read = _parameters(engine, parts, named[0].credentials, database)
    before = ("rediss" if parts.scheme in options.BY_TLS.values() else "redis") + "://" + user_info + at
    after = (f"/{database}" if database else "") + read.query
    urls = tuple(before + server.written + after for server in named)
    addresses = tuple(server.address for server in named)
    if engine == "redlock":
        _refuse_duplicates(addresses)
    return SentinelTarget(master, addresses, urls[0]) if engine == "sentinel" else urls, read


def _one_server(parts: Parts) -> tuple[str, _Read]:
    scheme, netloc, path = parts.scheme, parts.netloc, parts.path
    if "," in netloc.rpartition("@")[2]:
        raise UsageError(f"{scheme}:// names one server; several are for redis+sentinel, redis+cluster and redlock")
    credentials = one_server(netloc, 6379).credentials
    if scheme == "unix" and not path.strip("/"):
        raise UsageError("a unix URL names a socket: unix:///path/to/redis.sock")
    read = _parameters("redis", parts, credentials, "" if scheme == "unix" else path.strip("/"))
    return f"{scheme}://{netloc}{path}{read.query}", read


def _master_and_database(parts: Parts) -> tuple[str, str]:
    """The path of a sentinel URL: the master's name, decoded, and the database's number or nothing."""
    first, slash, database = parts.path.strip("/").partition("/")
    example = f"{parts.scheme}://{_AFTER_SCHEME['sentinel']}"
    if not first:
        raise UsageError(f"the URL does not name the master that the sentinels watch; write {example} or …/MASTER/0")
    master = unquote(first)
    if "/" in database or any(mark in first for mark in "@:,") or not master.isprintable():
        # After an unescaped '/' in the user info, the path contains half a password and the hosts.
        raise UsageError(f"the URL's path is not MASTER or MASTER/DB, in which '/' is %2F, ':' is %3A; {ENCODE}")
    if not slash and first.isdigit():
        raise UsageError(f"the master's name is missing before the database; write {example}/0")
    return master, database


def _parameters(engine: str, parts: Parts, credentials: dict[str, str], database: str) -> _Read:
    extra = options.ENGINE_OPTIONS.get(engine, frozenset())
    own, query = sort_query(parts.query, options.URL_OPTIONS | options.WITHOUT_EFFECT | extra)
    given = {name: value for name, (value, _) in query.items() if name not in options.WITHOUT_EFFECT}
    for name, value in credentials.items():
        if name in given:
            raise UsageError(f"{name} is given twice in the URL: before the host and as a parameter; remove one")
        given[name] = value
    if database and given.setdefault("db", database) != database:
        raise UsageError("the database number is given twice in the URL: in the path and as db=; remove one")
    number = given.get("db", "0")
    # The driver would silently read any other text as database 0, which is another set of locks.
    if not (number.isascii() and number.isdigit()):
        example = parts.scheme + "://" + _AFTER_SCHEME.get(engine, "host") + "/0"
        raise UsageError(f"the URL's path or db= is no database number, as in {example}; {ENCODE}")
    rest = "&".join(raw for name, (_, raw) in query.items() if name in given and name not in extra)
    return _Read(own, given, f"?{rest}" if rest else "")


def _refuse_duplicates(nodes: tuple[tuple[str, int], ...]) -> None:
    """A server that is named twice would have two votes. (``doctor`` finds two names of one server.)"""
    seen: dict[tuple[str, int], int] = {}
    for position, (host, port) in enumerate(nodes, 1):
        first = seen.setdefault((host.lower(), port), position)
        if first != position:
            raise UsageError(f"nodes {first} and {position} of the URL are the same: each must be a server of its own")
