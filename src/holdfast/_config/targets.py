"""URLs of engines: which scheme means which engine. Pure, and careful never to repeat a part that may hold a secret."""

from __future__ import annotations

from typing import Final
from urllib.parse import unquote

from holdfast._core import parameters, redis_urls, zookeeper_urls
from holdfast._core.url_parts import ENCODE, ParsedURL, Parts, cut, sort_query
from holdfast.errors import UsageError

#: Scheme → engine.
SCHEMES: Final = {**redis_urls.SCHEMES, **zookeeper_urls.SCHEMES, "sqlite": "sqlite", "memory": "memory"}

#: Part of the contract, not of this version.
PLANNED: Final = frozenset({"etcd", "postgresql"})


def parse(url: str) -> ParsedURL:
    """Take ``url`` apart, or raise UsageError with the remedy."""
    parts = _known(url)
    engine = SCHEMES[parts.scheme]
    if parts.fragment:
        raise UsageError(f"the URL has a '#': write %23; {ENCODE}")
    if parts.scheme in redis_urls.SCHEMES:
        return redis_urls.parse(parts)
    if parts.scheme in zookeeper_urls.SCHEMES:
        return zookeeper_urls.parse(parts)
    if parts.netloc or (not parts.path and "//" in url):
        example = "sqlite:///absolute/path or sqlite:relative/path" if engine == "sqlite" else "memory: or memory:NAME"
        raise UsageError(f"a {engine} URL names no host; write {example}")
    own, _ = sort_query(parts.query, frozenset())
    target = _sqlite_path(parts.path) if engine == "sqlite" else unquote(parts.path)
    return ParsedURL(engine, parts.scheme, target, own, {})


def redact(url: str) -> str:
    """``url`` fit for people to see: no user info, no query. Errs on the side of showing too little."""
    scheme, separator, rest = url.partition("://")
    if not separator:
        return url.partition("?")[0] if url.startswith(("sqlite:", "memory:")) else "…"
    # Cut at the *last* '@', wherever it stands: an unescaped '/' in a password would hide it from a URL parser.
    return f"{scheme}://{rest.rpartition('@')[2].partition('?')[0].partition('#')[0]}"


def _known(url: str) -> Parts:
    """The parts of a URL whose scheme is one of ours."""
    if url != url.strip() or any(ord(character) < 32 or ord(character) == 127 for character in url):
        raise UsageError("the URL contains a control character, or begins or ends with white space; remove it")
    parts = cut(url)
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


def _sqlite_path(path: str) -> str | None:
    decoded = unquote(path, errors="surrogateescape")  # as os.fsdecode: a path is bytes, and need not be UTF-8
    if decoded == ":memory:":
        raise UsageError("sqlite::memory: could not be shared by anybody; for locks inside one process use memory:")
    if "\0" in decoded:
        raise UsageError("the path in the sqlite URL contains a NUL character")
    return ("/" + decoded.lstrip("/") if decoded.startswith("/") else decoded) or None
