"""The parts of a URL, and what was made of them: texts only, no engine is known here.

A password with an unescaped '/', '?', '#' or '@' moves the borders of the parts, so errors name our own words
(schemes, parameter names that look like names) and nothing else of the text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, NamedTuple
from urllib.parse import unquote, unquote_plus, urlsplit

from holdfast._core import parameters
from holdfast._core.sentinel_target import SentinelTarget
from holdfast._core.zookeeper_target import ZooKeeperTarget
from holdfast.errors import UsageError

ENCODE: Final = "user info must be percent-encoded: '/' is %2F, '?' is %3F, '#' is %23, '@' is %40, ':' is %3A"

#: As in RFC 3986, appendix B: every text matches. The standard library's parser has rules for one host, and newer ones
#: refuse lists with an IPv6 address in them; hosts are looked at by those who know how many there may be.
_PARTS: Final = re.compile(
    r"(?:([a-z][a-z0-9+.-]*):)?(?://([^/?#]*))?([^?#]*)(?:\?([^#]*))?(?:#(.*))?", re.IGNORECASE | re.DOTALL
)

_UNREADABLE: Final = (
    "a host or port of the URL cannot be read: there is no white space, a port is 1 to 65535, an IPv6 address stands "
    f"in brackets; {ENCODE}"
)
_HOST_AND_PORT: Final = re.compile(r"(\[[^]\[\s]+\]|[^]\[:\s]*)(:[0-9]*)?")


class Parts(NamedTuple):
    """A URL as written, cut at its borders; the scheme in lower case."""

    scheme: str
    #: User info and hosts.
    netloc: str
    path: str
    query: str
    fragment: str


class Server(NamedTuple):
    """One host of a URL."""

    #: As written, but in lower case and without brackets; empty if the URL names none.
    host: str
    port: int
    #: What the user info says, decoded: ``username`` and ``password``, as far as they are given.
    credentials: dict[str, str]

    @property
    def address(self) -> tuple[str, int]:
        return unquote(self.host), self.port

    @property
    def written(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class ParsedURL(NamedTuple):
    """One engine URL. ``own`` and ``given`` are texts as written, percent-decoded."""

    engine: str
    scheme: str
    #: redis: the URL for the driver, without our own parameters; cluster, redlock: one such URL for each host;
    #: sqlite: the path or None; memory: the store's name.
    target: str | tuple[str, ...] | SentinelTarget | ZooKeeperTarget | None
    own: dict[str, str]
    #: What the URL says about the driver's settings: query parameters, user info and database number.
    given: dict[str, str]


def cut(url: str) -> Parts:
    """``url`` in its parts; missing ones are empty. Cannot fail."""
    found = _PARTS.fullmatch(url)
    assert found is not None  # every group is optional, and together they allow every character
    scheme, netloc, path, query, fragment = (part or "" for part in found.groups())
    return Parts(scheme.lower(), netloc, path, query, fragment)


def servers(netloc: str, default_port: int, example: str) -> list[Server]:
    """The hosts of a URL that may name several, or UsageError with an ``example``. User info stands once, for all."""
    user_info, _, hosts = netloc.rpartition("@")
    if "@" in user_info or "," in user_info:
        # a:pw@h1,a:pw@h2 would mean one host, h2, with a strange password.
        raise UsageError("user info stands once, before the first host, for all of them; in it '@' is %40, ',' is %2C")
    if not hosts:
        raise UsageError(f"the URL names no host; write {example}")
    found = [one_server(f"{user_info}@{host}", default_port) for host in hosts.split(",")]
    for position, server in enumerate(found, 1):
        if not server.host:
            raise UsageError(f"host {position} of {len(found)} in the URL is empty; write {example}")
    return found


def one_server(netloc: str, default_port: int) -> Server:
    """User info and one host, or UsageError; the host may be empty."""
    if not _HOST_AND_PORT.fullmatch(netloc.rpartition("@")[2]):
        raise UsageError(_UNREADABLE)  # the standard library lets some of these pass, depending on its version
    try:
        parts = urlsplit(f"//{netloc}")
        port = parts.port
    except ValueError:
        raise UsageError(_UNREADABLE) from None  # its text may be half a password
    if port == 0:
        raise UsageError(_UNREADABLE)  # to drivers it is the same as none, and that is another server
    texts = (("username", parts.username), ("password", parts.password))
    credentials = {name: unquote(text) for name, text in texts if text}
    return Server(parts.hostname or "", default_port if port is None else port, credentials)


def sort_query(query: str, driver: frozenset[str]) -> tuple[dict[str, str], dict[str, tuple[str, str]]]:
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
            shown = "" if "@" in query else name  # redis://joe:half?other=half@host
            raise UsageError(parameters.unknown("URL parameter", shown, parameters.OWN | driver))
    return own, others


def _pairs(query: str) -> Iterator[tuple[str, str, str]]:
    for raw in query.split("&"):
        if raw:
            name, _, value = raw.partition("=")
            yield unquote_plus(name), unquote_plus(value), raw
