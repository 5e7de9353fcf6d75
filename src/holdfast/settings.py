"""Where ``connect()`` without a URL connects to: ``configure``, the environment, a file, or the embedded default.

The first of these that names a URL wins:

1. ``holdfast.configure(...)``;
2. ``HOLDFAST_URL``, with ``HOLDFAST_TTL``, ``HOLDFAST_NAMESPACE``, ``HOLDFAST_RENEW``, ``HOLDFAST_REQUEST_TIMEOUT``,
   ``HOLDFAST_UNAVAILABLE_AFTER``, ``HOLDFAST_REPLICAS`` and ``HOLDFAST_TOKEN_TTL``;
3. the TOML file named by ``HOLDFAST_CONFIG``; ``HOLDFAST_PROFILE`` (or its key ``profile``) chooses a profile;
4. the embedded engine, to which the HOLDFAST_* options of 2 apply as well.

Keywords of a ``configure`` without a URL are laid over 2, 3 or 4. Refused, not ignored: HOLDFAST_* options beside a
file, a variable that is set but empty, a HOLDFAST_* that is not in this list. Files are never looked for. Each of these
could put two hosts on different engines by accident.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Mapping
from typing import Any, Final, Literal, NamedTuple

from holdfast._core import parameters
from holdfast.errors import InvalidName, UsageError
from holdfast.options import option_from_text, parse_target

Source = Literal["configure", "environment", "file", "embedded"]


class Default(NamedTuple):
    """The default target. ``url`` may also be a driver's client; None means the embedded engine."""

    url: Any
    keywords: dict[str, Any]
    source: Source

    def __repr__(self) -> str:  # the URL and the keywords may hold a password
        return f"Default(source={self.source!r}, keywords={sorted(self.keywords)})"


_PREFIX: Final = "HOLDFAST_"
#: The variables that are read, without the prefix.
_VARIABLES: Final = frozenset({"URL", "CONFIG", "PROFILE"} | {name.upper() for name in parameters.OWN})
#: Part of the contract, not of this version.
_PLANNED: Final = frozenset({"URL_FILE"})
#: Kubernetes sets variables by this name in each pod beside a service "holdfast" or "holdfast-…". They are no options.
_SERVICE_HOST: Final = re.compile(r"(HOLDFAST(?:_[A-Z0-9_]+)?)_SERVICE_HOST")

_lock: Final = threading.Lock()
_configured: tuple[Any, dict[str, Any]] = (None, {})


def configure(url_or_client: Any = None, **keywords: Any) -> None:
    """Set the default of this process for ``connect()`` and ``@holdfast.locked``; without arguments, reset it.

    Takes what ``connect`` takes and validates it now. Clients that exist already are not changed.
    """
    global _configured
    # A fault should show here, not at the first lock. Without a URL the engine is not known yet: only our own
    # keywords can be checked.
    own = {name: value for name, value in keywords.items() if name in parameters.OWN}
    parse_target(url_or_client, own if url_or_client is None else keywords)
    with _lock:
        _configured = (url_or_client, dict(keywords))


def configured() -> object:
    """What the last ``configure`` has set, as an object to compare by identity: another one after each call."""
    return _configured


def resolve_default(environment: Mapping[str, str] = os.environ) -> Default:
    """What ``connect()`` without a URL means now. Reads the environment and perhaps one file; connects to nothing."""
    with _lock:
        url, keywords = _configured
    if url is not None:
        return Default(url, dict(keywords), "configure")
    found = _from_environment(environment)
    return found._replace(keywords=found.keywords | keywords)


def _from_environment(environment: Mapping[str, str]) -> Default:
    given = _variables(environment)
    url, path, profile = (given.pop(name, None) for name in ("URL", "CONFIG", "PROFILE"))
    keywords = {
        name.lower(): option_from_text(name.lower(), text, where=_PREFIX + name) for name, text in sorted(given.items())
    }
    if url is not None:
        return Default(url, _checked(url, keywords, "HOLDFAST_URL"), "environment")
    if path is not None:
        if keywords:
            variables = ", ".join(_PREFIX + name for name in sorted(given))
            raise UsageError(
                f"{variables} and HOLDFAST_CONFIG are both set: the options belong in the file, or set HOLDFAST_URL"
            )
        return _from_file(path, profile)
    if profile is not None:
        raise UsageError("HOLDFAST_PROFILE is set, but HOLDFAST_CONFIG does not name the file that defines it")
    return Default(None, _checked(None, keywords, "HOLDFAST_*"), "embedded")


def _variables(environment: Mapping[str, str]) -> dict[str, str]:
    """The HOLDFAST_* variables, without their prefix; UsageError for one that is unknown or empty.

    A misspelt HOLDFAST_URL, or one that a deployment left empty (``HOLDFAST_URL=$UNSET``), would mean the embedded
    engine: each host would then lock by itself, and no program would notice.
    """
    services = [found[1] for variable in environment if (found := _SERVICE_HOST.fullmatch(variable))]
    links = tuple(service + suffix for service in services for suffix in ("_SERVICE_HOST", "_SERVICE_PORT", "_PORT"))
    given = {}
    for variable, text in sorted(environment.items()):
        if not variable.startswith(_PREFIX) or variable.startswith(links):
            continue
        name = variable.removeprefix(_PREFIX)
        if name not in _VARIABLES:
            raise UsageError(_unknown(name))
        if not text.strip():
            raise UsageError(f"{variable} is set but empty; give it a value, or unset it")
        given[name] = text
    return given


def _unknown(name: str) -> str:
    """The sentence about a variable that is not read, with the nearest that is."""
    if name in _PLANNED:
        return f"{_PREFIX}{name} is not yet read by this version of holdfast; unset it, and set HOLDFAST_URL"
    guess = parameters.nearest(name, [known.lower() for known in _VARIABLES])
    every = ", ".join(_PREFIX + known for known in sorted(_VARIABLES))
    hint = f"did you mean {_PREFIX}{guess.upper()}?" if guess else f"known: {every}"
    return f"unknown environment variable {_PREFIX + name!r}; {hint}"


def _from_file(path: str, profile: str | None) -> Default:
    import tomllib  # here, not above: few programs need it, and all would pay for it

    where = f"settings file {path!r} (HOLDFAST_CONFIG)"
    try:
        with open(path, "rb") as file:
            table = tomllib.load(file)
    except OSError as error:
        raise UsageError(f"{where} cannot be read: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        # Not chained: a decoder may quote the line it failed on, and that line may hold a password.
        position = str(error).rpartition("(at ")[2].rstrip(")") if "(at " in str(error) else "not UTF-8"
        raise UsageError(f"{where} is not valid TOML ({position})") from None
    profiles = table.pop("profiles", {})
    chosen = table.pop("profile", None)
    if profile is not None:
        chosen = profile
    if chosen is not None:
        table |= _profile(profiles, chosen, where)
    url = table.pop("url", None)
    if url is None:
        raise UsageError(f"{where} names no url; add url = '…'" + (" or choose a profile" if profiles else ""))
    if not isinstance(url, str):
        raise UsageError(f"{where}: url is not a text")
    return Default(url, _checked(url, _from_toml(table, where), where), "file")


def _profile(profiles: object, chosen: object, where: str) -> dict[str, Any]:
    if not isinstance(profiles, dict) or not isinstance(chosen, str):
        raise UsageError(f"{where}: a profile is chosen by its name and stands in a table [profiles.NAME]")
    if chosen not in profiles:
        raise UsageError(f"{where}: {parameters.unknown('profile', chosen, profiles.keys())}")
    table = profiles[chosen]
    if not isinstance(table, dict):
        raise UsageError(f"{where}: profile {chosen!r} is not a table; write [profiles.{chosen}]")
    return table


def _from_toml(table: dict[str, Any], where: str) -> dict[str, Any]:
    """Texts of our own options converted, as in a URL: "30s", "none"; TOML's own numbers and bools as they are."""
    return {
        name: option_from_text(name, value, where=where) if name in parameters.OWN and isinstance(value, str) else value
        for name, value in table.items()
    }


def _checked(url: str | None, keywords: dict[str, Any], where: str) -> dict[str, Any]:
    """Find faults here, where it can still be said what they stand in."""
    try:
        parse_target(url, keywords)
    except (UsageError, InvalidName, ValueError, TypeError) as error:
        raise UsageError(f"{where}: {error}") from None
    return keywords
