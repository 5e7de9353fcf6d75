"""Names of holdfast's own options, and errors about unknown names with the nearest known one. Pure."""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Iterable
from typing import Final

from holdfast.errors import UsageError

#: Our own keywords: those of ``connect``, of a URL's query, of HOLDFAST_* and of the settings file.
OWN: Final = frozenset(
    {"label", "namespace", "renew", "replicas", "request_timeout", "token_ttl", "ttl", "unavailable_after"}
)

#: Our own keywords that only Python can express: a text cannot name a function.
PYTHON_ONLY: Final = frozenset({"observer"})

#: The texts for true and false.
BOOLS: Final = dict.fromkeys(("1", "true", "yes", "on"), True) | dict.fromkeys(("0", "false", "no", "off"), False)

_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}")


def is_name(text: str) -> bool:
    """Whether ``text`` looks like the name of a parameter. If not, it may be the second half of a password."""
    return _NAME.fullmatch(text) is not None


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name that ``name`` was probably meant to be."""
    return next(iter(difflib.get_close_matches(name.lower().replace("-", "_"), list(known), n=1)), None)


def unknown(kind: str, name: str, known: Collection[str]) -> str:
    """The sentence about an unknown ``name``: with the nearest known one, else with all of them.

    A name that does not look like one is not repeated: it may be the second half of an unescaped password.
    """
    if not is_name(name):
        return f"a {kind} has no valid name; '?', '#', '/' and '@' in user info must be percent-encoded"
    if name in PYTHON_ONLY:
        return f"{kind} {name!r} is a Python object: give it to connect() as a keyword"
    from holdfast.engines import registry  # here, not above: the decorators need this module, and no engine

    if (scheme := registry.scheme_with_option(name)) is not None:
        return f"{kind} {name!r} is for {scheme}:// only"
    guess = nearest(name, known)
    hint = f"did you mean {guess!r}?" if guess else f"known: {', '.join(sorted(known))}"
    return f"unknown {kind} {name!r}; {hint}"


def refuse_unknown_options(given: Iterable[str], known: frozenset[str]) -> None:
    """UsageError for a keyword that is neither one of the engine's ``known`` options nor one of holdfast's own."""
    for name in given:
        if name not in known:
            raise UsageError(unknown("option", name, OWN | known))


def contradiction(name: str) -> UsageError:
    """The error for an option whose keyword differs from the URL. Shows neither value."""
    return UsageError(f"{name} is given as a keyword and, differently, in the URL; remove one of them")
