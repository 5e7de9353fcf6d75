"""URLs of Redis: one server, a master behind sentinels, a cluster, independent masters.

Several hosts are read as that many URLs of one server each: what one server may be told, all of them are. As
everywhere in these parsers, no error repeats a part of the URL that could be half a password.
"""

from __future__ import annotations

from typing import Final
from urllib.parse import unquote

from holdfast._core import parameters
from holdfast._core.sentinel_target import SentinelTarget
from holdfast._core.url_parts import ENCODE, ParsedURL, Parts, one_server, servers, sort_query
from holdfast.errors import UsageError

#: Scheme → engine.
SCHEMES: Final = {
    "redis": "redis",
    "rediss": "redis",
    "unix": "redis",
    "redis+sentinel": "sentinel",
    "rediss+sentinel": "sentinel",
    "redis+cluster": "cluster",
    "rediss+cluster": "cluster",
    "redlock": "redlock",
    "redlocks": "redlock",
}

#: Scheme → the one that means the same by TLS.
BY_TLS: Final = {
    "redis": "rediss",
    "unix": "rediss",
    "redis+sentinel": "rediss+sentinel",
    "redis+cluster": "rediss+cluster",
    "redlock": "redlocks",
}

_AFTER_SCHEME: Final = {
    "sentinel": "h1:26379,h2:26379,h3:26379/MASTER",
    "cluster": "h1:7000,h2:7001",
    "redlock": "h1:6379,h2:6379,h3:6379",
}


def parse(parts: Parts) -> ParsedURL:
    """The target of a URL whose scheme is one of SCHEMES, or UsageError with the remedy."""
    engine = SCHEMES[parts.scheme]
    return _one_server(parts) if engine == "redis" else _several_servers(engine, parts)


def _several_servers(engine: str, parts: Parts) -> ParsedURL:
    user_info, at, _ = parts.netloc.rpartition("@")
    default_port = 26379 if engine == "sentinel" else 6379
    named = servers(parts.netloc, default_port, f"{parts.scheme}://{_AFTER_SCHEME[engine]}")
    master, database = _master_and_database(parts) if engine == "sentinel" else ("", parts.path.strip("/"))
    own, given, query = _parameters(engine, parts, named[0].credentials, database)
    before = ("rediss" if parts.scheme in BY_TLS.values() else "redis") + "://" + user_info + at
    after = (f"/{database}" if database else "") + query
    urls = tuple(before + server.written + after for server in named)
    addresses = tuple(server.address for server in named)
    if engine == "redlock":
        _refuse_duplicates(addresses)
    target = SentinelTarget(master, addresses, urls[0]) if engine == "sentinel" else urls
    return ParsedURL(engine, parts.scheme, target, own, given)


def _one_server(parts: Parts) -> ParsedURL:
    scheme, netloc, path = parts.scheme, parts.netloc, parts.path
    if "," in netloc.rpartition("@")[2]:
        raise UsageError(f"{scheme}:// names one server; several are for redis+sentinel, redis+cluster and redlock")
    credentials = one_server(netloc, 6379).credentials
    if scheme == "unix" and not path.strip("/"):
        raise UsageError("a unix URL names a socket: unix:///path/to/redis.sock")
    database = "" if scheme == "unix" else path.strip("/")
    own, given, query = _parameters("redis", parts, credentials, database)
    return ParsedURL("redis", scheme, f"{scheme}://{netloc}{path}{query}", own, given)


def _master_and_database(parts: Parts) -> tuple[str, str]:
    """The path of a sentinel URL: the master's name, decoded, and the database's number or nothing."""
    first, slash, database = parts.path.strip("/").partition("/")
    example = f"{parts.scheme}://{_AFTER_SCHEME['sentinel']}"
    if not first:
        raise UsageError(f"the URL does not name the master that the sentinels watch; write {example} or …/MASTER/0")
    master = unquote(first)
    if "/" in database or any(mark in first for mark in "@:,") or not master.isprintable():
        # An unescaped '/' in the user info brings half a password and the hosts here.
        raise UsageError(f"the URL's path is not MASTER or MASTER/DB, in which '/' is %2F, ':' is %3A; {ENCODE}")
    if not slash and first.isdigit():
        raise UsageError(f"the master's name is missing before the database; write {example}/0")
    return master, database


def _parameters(
    engine: str, parts: Parts, credentials: dict[str, str], database: str
) -> tuple[dict[str, str], dict[str, str], str]:
    """Our own parameters; what the URL says about the driver's settings; and the query that is left for the driver."""
    extra = parameters.EXTRA.get(engine, frozenset())
    own, query = sort_query(parts.query, parameters.REDIS_URL | parameters.REDIS_WITHOUT_EFFECT | extra)
    given = {name: value for name, (value, _) in query.items() if name not in parameters.REDIS_WITHOUT_EFFECT}
    for name, value in credentials.items():
        if name in given:
            raise UsageError(f"{name} is given twice in the URL: before the host and as a parameter; remove one")
        given[name] = value
    if database and given.setdefault("db", database) != database:
        raise UsageError("the database number is given twice in the URL: in the path and as db=; remove one")
    number = given.get("db", "0")
    # The driver would take what it cannot read for database 0: another set of locks, without a word.
    if not (number.isascii() and number.isdigit()):
        example = parts.scheme + "://" + _AFTER_SCHEME.get(engine, "host") + "/0"
        raise UsageError(f"the URL's path or db= is no database number, as in {example}; {ENCODE}")
    rest = "&".join(raw for name, (_, raw) in query.items() if name in given and name not in extra)
    return own, given, f"?{rest}" if rest else ""


def _refuse_duplicates(nodes: tuple[tuple[str, int], ...]) -> None:
    """A majority of nodes that are one and the same is none. (Two names of one server are for ``doctor`` to find.)"""
    seen: dict[tuple[str, int], int] = {}
    for position, (host, port) in enumerate(nodes, 1):
        first = seen.setdefault((host.lower(), port), position)
        if first != position:
            raise UsageError(f"nodes {first} and {position} of the URL are the same: each must be a server of its own")
