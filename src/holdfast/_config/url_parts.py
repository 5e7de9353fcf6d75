"""Generic parts of a URL, and the result of parsing it. Texts only: no engine is known here.

A password with an unescaped '/', '?', '#' or '@' shifts the boundaries between the parts. Errors therefore show only
schemes and parameter names that look like names, and no other part of the text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple, Protocol
from urllib.parse import unquote, unquote_plus, urlsplit

from holdfast._config import parameters
from holdfast.errors import UsageError

ENCODE: Final = "user info must be percent-encoded: '/' is %2F, '?' is %3F, '#' is %23, '@' is %40, ':' is %3A"

#: As in RFC 3986, appendix B: every text matches. The standard library's parser expects one host, and newer versions
#: refuse lists that contain an IPv6 address. Each engine's grammar checks the hosts, since it knows how many are valid.
_PARTS: Final = re.compile(
    r"(?:([a-z][a-z0-9+.-]*):)?(?://([^/?#]*))?([^?#]*)(?:\?([^#]*))?(?:#(.*))?", re.IGNORECASE | re.DOTALL
)

_UNREADABLE: Final = (
    "a host or port of the URL cannot be read: there is no white space, a port is 1 to 65535, an IPv6 address stands "
    f"in brackets; {ENCODE}"
)
_HOST_AND_PORT: Final = re.compile(r"(\[[^]\[\s]+\]|[^]\[:\s]*)(:[0-9]*)?")


class Parts(NamedTuple):
    """A URL as written, cut at its boundaries; the scheme in lower case."""

    scheme: str
    #: User info and hosts.
    netloc: str
    path: str
    query: str
    fragment: str
    #: Whether '//' follows the scheme; ``netloc`` may be empty all the same.
    has_authority: bool


class Server(NamedTuple):
    """One host of a URL."""

    #: As written, but in lower case and without brackets; empty if the URL names none.
    host: str
    port: int
    #: ``username`` and ``password`` of the user info, decoded, if they are given.
    credentials: dict[str, str]

    @property
    def address(self) -> tuple[str, int]:
        return unquote(self.host), self.port

    @property
    def written(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class ParsedURL(NamedTuple):
    """A URL and the engine's keywords, parsed. ``own`` and ``given`` are texts as written, percent-decoded."""

    engine: str
    #: What the engine's factory is given as its target.
    target: Any
    #: holdfast's own parameters.
    own: dict[str, str]
    #: The driver's settings in the URL: query parameters, user info and database number.
    given: dict[str, str]
    #: What the engine's factory is given beside the target, from the URL and the keywords.
    options: dict[str, Any]

    def __repr__(self) -> str:  # the target and the options may contain a password
        return f"ParsedURL({self.engine}, {sorted(self.own)}, {sorted(self.given)}, {sorted(self.options)})"


class URLGrammar(Protocol):
    """How an engine reads its URLs and options. The module that a row of the registry names fulfils it."""

    def parse(self, engine: str, parts: Parts, keywords: Mapping[str, Any]) -> ParsedURL:
        """The target and options of a URL and of keywords that are not holdfast's own; UsageError with the remedy."""

    def option_names(self, engine: str) -> frozenset[str]:
        """The names of the engine's options, also of those that are refused with a reason."""


class ClientDetection(Protocol):
    """How an engine recognises clients of its driver, by the names of their classes. No driver is imported for it."""

    def detect_client(self, client: Any, keywords: Mapping[str, Any]) -> tuple[str, dict[str, Any]] | None:
        """The engine for ``client`` and its options; None if it is no client. UsageError if it cannot be shared."""


def cut(url: str) -> Parts:
    """``url`` in its parts; missing ones are empty. Cannot fail."""
    found = _PARTS.fullmatch(url)
    assert found is not None  # every group is optional, and together they allow every character
    scheme, netloc, path, query, fragment = (part or "" for part in found.groups())
    return Parts(scheme.lower(), netloc, path, query, fragment, found[2] is not None)


def servers(netloc: str, default_port: int, example: str) -> list[Server]:
    """The hosts of a URL that may name several, or UsageError with an ``example``. User info stands once, for all."""
    user_info, _, hosts = netloc.rpartition("@")
    if "@" in user_info or "," in user_info:
        # a:pw@h1,a:pw@h2 would otherwise mean one host, h2, with the password "pw@h1,a:pw".
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
        raise UsageError(_UNREADABLE)  # the standard library accepts some of these, depending on its version
    try:
        parts = urlsplit(f"//{netloc}")
        port = parts.port
    except ValueError:
        raise UsageError(_UNREADABLE) from None  # its text may be half a password
    if port == 0:
        raise UsageError(_UNREADABLE)  # drivers replace it by their default, which is another server
    texts = (("username", parts.username), ("password", parts.password))
    credentials = {name: unquote(text) for name, text in texts if text}
    return Server(parts.hostname or "", default_port if port is None else port, credentials)


def sort_query(query: str, driver: frozenset[str] | None) -> tuple[dict[str, str], dict[str, tuple[str, str]]]:
    """holdfast's own parameters (decoded), and the driver's (decoded, and raw as written).

    ``driver`` are the driver's names; None: any text that looks like a name. Raises UsageError for other parameters.
    """
    own: dict[str, str] = {}
    others: dict[str, tuple[str, str]] = {}
    for name, value, raw in _pairs(query):
        if name in own or name in others:
            raise UsageError(f"the URL gives the parameter {name!r} twice; remove one")
        if name in parameters.OWN:
            own[name] = value
        elif parameters.is_name(name) if driver is None else name in driver:
            others[name] = (value, raw)
        else:
            shown = "" if "@" in query else name  # redis://joe:half?other=half@host
            raise UsageError(parameters.unknown("URL parameter", shown, parameters.OWN | (driver or frozenset())))
    return own, others


def local_parameters(parts: Parts, keywords: Mapping[str, Any], example: str) -> dict[str, str]:
    """holdfast's own parameters in the URL of an engine without hosts and options; UsageError if there are any."""
    if parts.netloc or (parts.has_authority and not parts.path):
        raise UsageError(f"a {parts.scheme} URL names no host; write {example}")
    own, _ = sort_query(parts.query, frozenset())
    parameters.refuse_unknown_options(keywords, frozenset())
    return own


def _pairs(query: str) -> Iterator[tuple[str, str, str]]:
    for raw in query.split("&"):
        if raw:
            name, _, value = raw.partition("=")
            yield unquote_plus(name), unquote_plus(value), raw
