"""URLs of engines, taken apart. Pure, and careful never to repeat a part that may hold a secret.

A password with an unescaped '/', '?', '#' or '@' moves the borders of the parts, so errors name our own words
(schemes, parameter names that look like names) and nothing else of the text.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple
from urllib.parse import SplitResult, unquote, unquote_plus, urlsplit

from holdfast._core import parameters
from holdfast.errors import UsageError

#: Scheme → engine.
SCHEMES: Final = {"redis": "redis", "rediss": "redis", "unix": "redis", "sqlite": "sqlite", "memory": "memory"}

#: Part of the contract, not of this version.
PLANNED: Final = frozenset(
    {"redis+sentinel", "rediss+sentinel", "redis+cluster", "rediss+cluster", "redlock", "redlocks"}
    | {"zookeeper", "etcd", "postgresql"}
)

_ENCODE: Final = "user info must be percent-encoded: '/' is %2F, '?' is %3F, '#' is %23, '@' is %40, ':' is %3A"
_UNREADABLE: Final = f"the URL's host or port cannot be read; {_ENCODE}"


class ParsedURL(NamedTuple):
    """One engine URL. ``own`` and ``given`` are texts as written, percent-decoded."""

    engine: str
    scheme: str
    #: redis: the URL for the driver, without our own parameters; sqlite: the path or None; memory: the store's name.
    target: str | None
    own: dict[str, str]
    #: What the URL says about the driver's settings: query parameters, user info and database number.
    given: dict[str, str]


def parse(url: str) -> ParsedURL:
    """Take ``url`` apart, or raise UsageError with the remedy."""
    parts = _split(url)
    engine = SCHEMES[parts.scheme]
    if parts.fragment:
        raise UsageError(f"the URL has a '#': write %23; {_ENCODE}")
    if engine == "redis":
        return _parse_redis(parts)
    if parts.netloc or (not parts.path and "//" in url):
        example = "sqlite:///absolute/path or sqlite:relative/path" if engine == "sqlite" else "memory: or memory:NAME"
        raise UsageError(f"a {engine} URL names no host; write {example}")
    own, _ = _sort_query(parts.query, frozenset())
    target = _sqlite_path(parts.path) if engine == "sqlite" else unquote(parts.path)
    return ParsedURL(engine, parts.scheme, target, own, {})


def redact(url: str) -> str:
    """``url`` fit for people to see: no user info, no query. Errs on the side of showing too little."""
    scheme, separator, rest = url.partition("://")
    if not separator:
        return url.partition("?")[0] if url.startswith(("sqlite:", "memory:")) else "…"
    # Cut at the *last* '@', wherever it stands: an unescaped '/' in a password would hide it from a URL parser.
    return f"{scheme}://{rest.rpartition('@')[2].partition('?')[0].partition('#')[0]}"


def _split(url: str) -> SplitResult:
    if url != url.strip() or any(ord(character) < 32 or ord(character) == 127 for character in url):
        raise UsageError("the URL contains a control character, or begins or ends with white space; remove it")
    try:
        parts = urlsplit(url)
    except ValueError:
        raise UsageError(_UNREADABLE) from None  # the original's text quotes what it could not read
    if parts.scheme in SCHEMES:
        return parts
    known = ", ".join(SCHEMES)
    if parts.scheme in PLANNED:
        raise UsageError(f"{parts.scheme}:// is not yet available in this version of holdfast; available: {known}")
    guess = parameters.nearest(parts.scheme, [*SCHEMES, *PLANNED])
    hint = f"did you mean {guess!r}?" if guess else f"known: {known}"
    # Before a bare ':' stands a scheme or, in "user:password@host", a user: only '://' makes it fit to be repeated.
    if parts.scheme and url[len(parts.scheme) :].startswith("://"):
        raise UsageError(f"unknown URL scheme {parts.scheme!r}; {hint}")
    raise UsageError(f"not a URL that holdfast knows, such as redis://host:6379/0, sqlite:path or memory:; {hint}")


def _parse_redis(parts: SplitResult) -> ParsedURL:
    scheme, netloc, path = parts.scheme, parts.netloc, parts.path
    if "," in netloc.rpartition("@")[2]:
        raise UsageError(f"{scheme}:// names one server; several are for redis+sentinel, redis+cluster and redlock")
    try:
        parts.port  # noqa: B018  (parsed on access)
    except ValueError:
        raise UsageError(_UNREADABLE) from None  # its text may be half a password, as in redis://:a#b@host
    accepted = parameters.REDIS_URL | parameters.REDIS_WITHOUT_EFFECT
    own, query = _sort_query(parts.query, accepted)
    given = {name: value for name, (value, _) in query.items() if name not in parameters.REDIS_WITHOUT_EFFECT}
    for name, part in (("username", parts.username), ("password", parts.password)):
        if part:
            if name in given:
                raise UsageError(f"{name} is given twice in the URL: before the host and as a parameter; remove one")
            given[name] = unquote(part)
    if scheme == "unix":
        if not path.strip("/"):
            raise UsageError("a unix URL names a socket: unix:///path/to/redis.sock")
    elif database := path.strip("/"):
        # The driver would take what it cannot read for database 0: another set of locks, without a word.
        if not (database.isascii() and database.isdigit()):
            raise UsageError(f"the path of a {scheme} URL is a database number, as in {scheme}://host/0; {_ENCODE}")
        if given.setdefault("db", database) != database:
            raise UsageError("the database number is given twice in the URL: in the path and as db=; remove one")
    rest = "&".join(raw for name, (_, raw) in query.items() if name in given)
    return ParsedURL("redis", scheme, f"{scheme}://{netloc}{path}" + (f"?{rest}" if rest else ""), own, given)


def _sqlite_path(path: str) -> str | None:
    decoded = unquote(path)
    if decoded == ":memory:":
        raise UsageError("sqlite::memory: could not be shared by anybody; for locks inside one process use memory:")
    if "\0" in decoded:
        raise UsageError("the path in the sqlite URL contains a NUL character")
    return ("/" + decoded.lstrip("/") if decoded.startswith("/") else decoded) or None


def _pairs(query: str) -> Iterator[tuple[str, str, str]]:
    for raw in query.split("&"):
        if raw:
            name, _, value = raw.partition("=")
            yield unquote_plus(name), unquote_plus(value), raw


def _sort_query(query: str, driver: frozenset[str]) -> tuple[dict[str, str], dict[str, tuple[str, str]]]:
    """Our own parameters (decoded), and the driver's (decoded, and raw as written)."""
    own: dict[str, str] = {}
    others: dict[str, tuple[str, str]] = {}
    for name, value, raw in _pairs(query):
        if name in own or name in others:
            raise UsageError(f"the URL gives the parameter {name!r} twice; remove one")
        if name in parameters.OWN:
            own[name] = value
        elif name in driver:
            others[name] = (value, raw)
        else:
            raise UsageError(parameters.unknown("URL parameter", name, parameters.OWN | driver))
    return own, others
