"""From a URL, a driver's client or nothing to a target: which engine, with which settings.

Pure: no I/O, and no driver is imported. Wrong Python values raise ValueError or TypeError; wrong texts and wrong
combinations raise UsageError. No error repeats user info or a password.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from holdfast._config import parameters
from holdfast._config.durations import parse_duration
from holdfast._config.options import ClientOptions, option_from_text
from holdfast._config.url_parts import ENCODE, ClientDetection, ParsedURL, Parts, URLGrammar, cut, sort_query
from holdfast.engines import registry
from holdfast.errors import UsageError


class Target(NamedTuple):
    """What to connect to. ``target`` is for the engine named: a URL, several, a client, a path, a store's name."""

    #: The name of a built-in engine, or the URL scheme of another distribution's.
    engine: str
    target: Any
    options: ClientOptions
    engine_options: dict[str, Any]

    def __repr__(self) -> str:
        return f"Target({self.engine}, {self._shown()}, {self.options!r}, {sorted(self.engine_options)})"

    def _shown(self) -> str:
        target, row = self.target, registry.NAMES.get(self.engine)
        if row is not None and row.local:
            return repr(target)
        if isinstance(target, str):
            return repr(redact(target))
        if type(target) is tuple:
            return repr([redact(url) for url in target])
        if type(target).__module__.startswith("holdfast.engines."):
            return repr(target)  # a built-in engine's own type, whose repr shows no password
        return f"<{type(target).__module__}.{type(target).__qualname__}>"  # its own repr may show a password


def parse_target(url_or_client: Any, keywords: Mapping[str, Any]) -> Target:
    """Which engine, with which settings. ``keywords`` are those that the caller wrote, without defaults.

    An option given both in the URL and as a keyword must be the same in both; else UsageError: guessing which one
    was meant could put two processes on different locks.
    """
    ours = parameters.OWN | parameters.PYTHON_ONLY
    own = {name: value for name, value in keywords.items() if name in ours}
    others = {name: value for name, value in keywords.items() if name not in ours}
    if url_or_client is not None and not isinstance(url_or_client, str):
        engine, options = _detect_client(url_or_client, others)
        return Target(engine, url_or_client, ClientOptions(**own), options)
    parsed = parse_url(registry.DEFAULT_URL if url_or_client is None else url_or_client, others)
    for name, text in parsed.own.items():
        value = option_from_text(name, text, where=f"URL parameter {name}")
        if name in own and _normal(name, own[name]) != value:
            raise parameters.contradiction(name)
        own.setdefault(name, value)
    return Target(parsed.engine, parsed.target, ClientOptions(**own), parsed.options)


def parse_url(url: str, keywords: Mapping[str, Any]) -> ParsedURL:
    """``url`` and the ``keywords`` that are not holdfast's own, read by the engine of the scheme; or UsageError."""
    parts = _known(url)
    if parts.fragment:
        raise UsageError(f"the URL has a '#': write %23; {ENCODE}")
    row = registry.SCHEMES.get(parts.scheme)
    if row is None:
        return _parse_third_party(parts, keywords)
    grammar: URLGrammar = registry.load(row.url)
    return grammar.parse(row.name, parts, keywords)


def redact(url: str) -> str:
    """``url`` fit to be shown: no user info, no query. Prefers to show too little."""
    scheme, separator, rest = url.partition("://")
    if not separator:
        row = registry.SCHEMES.get(url.partition(":")[0])
        return url.partition("?")[0] if row is not None and row.local else "…"
    # Cut at the *last* '@' of the text: a URL parser would not find it behind an unescaped '/' in a password.
    return f"{scheme}://{rest.rpartition('@')[2].partition('?')[0].partition('#')[0]}"


def _known(url: str) -> Parts:
    """The parts of a URL whose scheme has an engine."""
    if url != url.strip() or any(ord(character) < 32 or ord(character) == 127 for character in url):
        raise UsageError("the URL contains a control character, or begins or ends with white space; remove it")
    parts = cut(url)
    if parts.scheme in registry.SCHEMES or (parts.scheme and registry.has_third_party(parts.scheme)):
        return parts
    installed = registry.third_party_schemes()
    known = ", ".join([*registry.SCHEMES, *installed])
    if parts.scheme in registry.PLANNED:
        raise UsageError(f"{parts.scheme}:// is not yet available in this version of holdfast; available: {known}")
    guess = parameters.nearest(parts.scheme, [*registry.SCHEMES, *registry.PLANNED, *installed])
    hint = f"did you mean {guess!r}?" if guess else f"known: {known}"
    if guess and installed:
        hint += f" Installed engines of other distributions: {', '.join(installed)}"
    # The text before a bare ':' is a scheme or, in "user:password@host", a user. It is repeated only before '://'.
    if parts.scheme and parts.has_authority:
        raise UsageError(f"unknown URL scheme {parts.scheme!r}; {hint}")
    raise UsageError(f"not a URL that holdfast knows, such as {registry.EXAMPLE_URLS}; {hint}")


def _parse_third_party(parts: Parts, keywords: Mapping[str, Any]) -> ParsedURL:
    """A URL of another distribution's engine: its factory is given the URL without query, and validates the rest."""
    if "@" in parts.query:
        # After an unescaped '?' in the user info, half a password would be a parameter.
        raise UsageError(f"an '@' in the query of the URL is written %40; {ENCODE}")
    own, query = sort_query(parts.query, None)
    given = {name: value for name, (value, _) in query.items()}
    for name in keywords.keys() & given.keys():
        if str(keywords[name]) != given[name]:
            raise parameters.contradiction(name)
    target = f"{parts.scheme}:{'//' if parts.has_authority else ''}{parts.netloc}{parts.path}"
    return ParsedURL(parts.scheme, target, own, given, {**given, **keywords})


def _detect_client(client: object, keywords: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """The engine for an existing client of a driver, and its options; UsageError for any other object."""
    kind = type(client)
    packages = {base.__module__.partition(".")[0] for base in kind.__mro__}
    for row in registry.BUILT_IN:
        if row.client_detection is not None and packages & row.client_packages:
            detection: ClientDetection = registry.load(row.client_detection)
            if (found := detection.detect_client(client, keywords)) is not None:
                return found
    raise UsageError(f"{kind.__module__}.{kind.__qualname__} is neither a URL nor {registry.SHARED_CLIENTS}")


def _normal(name: str, value: Any) -> Any:
    """``value`` as ClientOptions would keep it, for comparison with the value of a text."""
    if name in ("label", "namespace", "renew", "replicas") or value is None:
        return value
    return parse_duration(value, what=name)
