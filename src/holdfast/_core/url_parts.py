"""The parts of a URL, and what was made of them: texts only, no engine is known here.

A password with an unescaped '/', '?', '#' or '@' moves the borders of the parts, so errors name our own words
(schemes, parameter names that look like names) and nothing else of the text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, NamedTuple
from urllib.parse import unquote_plus

from holdfast._core import parameters
from holdfast._core.sentinel_target import SentinelTarget
from holdfast.errors import UsageError

ENCODE: Final = "user info must be percent-encoded: '/' is %2F, '?' is %3F, '#' is %23, '@' is %40, ':' is %3A"

#: As in RFC 3986, appendix B: every text matches. The standard library's parser has rules for one host, and newer ones
#: refuse lists with an IPv6 address in them; hosts are looked at by those who know how many there may be.
_PARTS: Final = re.compile(
    r"(?:([a-z][a-z0-9+.-]*):)?(?://([^/?#]*))?([^?#]*)(?:\?([^#]*))?(?:#(.*))?", re.IGNORECASE | re.DOTALL
)


class Parts(NamedTuple):
    """A URL as written, cut at its borders; the scheme in lower case."""

    scheme: str
    #: User info and hosts.
    netloc: str
    path: str
    query: str
    fragment: str


class ParsedURL(NamedTuple):
    """One engine URL. ``own`` and ``given`` are texts as written, percent-decoded."""

    engine: str
    scheme: str
    #: redis: the URL for the driver, without our own parameters; cluster, redlock: one such URL for each host;
    #: sqlite: the path or None; memory: the store's name.
    target: str | tuple[str, ...] | SentinelTarget | None
    own: dict[str, str]
    #: What the URL says about the driver's settings: query parameters, user info and database number.
    given: dict[str, str]


def cut(url: str) -> Parts:
    """``url`` in its parts; missing ones are empty. Cannot fail."""
    found = _PARTS.fullmatch(url)
    assert found is not None  # every group is optional, and together they allow every character
    scheme, netloc, path, query, fragment = (part or "" for part in found.groups())
    return Parts(scheme.lower(), netloc, path, query, fragment)


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
