"""The HOLDFAST_* variables: which are read, which belong to other programs, and what they set."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from holdfast._config import parameters
from holdfast._config.options import option_from_text
from holdfast.errors import UsageError

PREFIX: Final = "HOLDFAST_"
_TARGETS: Final = ("URL", "URL_FILE", "CONFIG", "PROFILE")
#: The variables that are read, without the prefix.
VARIABLES: Final = frozenset(_TARGETS) | {name.upper() for name in parameters.OWN}
#: ``holdfast run`` sets these for its command, which may use holdfast itself. They are never options.
RESERVED: Final = frozenset({"NAME", "TOKEN", "OWNER", "MODE", "HELD"})
#: Kubernetes sets such variables in each pod if there is a service "holdfast" or "holdfast-…". They are no options.
_SERVICE_HOST: Final = re.compile(r"(HOLDFAST(?:_[A-Z0-9_]+)?)_SERVICE_HOST")


class Variables(NamedTuple):
    """The values of the variables; None for a variable that is not set."""

    url: str | None
    url_file: str | None
    config: str | None
    profile: str | None
    #: Our own options, as texts.
    options: Mapping[str, str]

    def keywords(self) -> dict[str, Any]:
        """The options as ``connect`` takes them, or UsageError naming the variable."""
        return {name: option_from_text(name, text, where=variable(name)) for name, text in self.options.items()}


def variable(name: str) -> str:
    """The variable that sets the option ``name``."""
    return PREFIX + name.upper()


def read(environment: Mapping[str, str]) -> Variables:
    """The HOLDFAST_* variables; UsageError for one that is unknown or empty, and for two that contradict each other.

    A misspelt HOLDFAST_URL, or one that a deployment left empty (``HOLDFAST_URL=$UNSET``), would mean the embedded
    engine: the hosts would then not exclude each other, and no program would notice.
    """
    services = [found[1] for name in environment if (found := _SERVICE_HOST.fullmatch(name))]
    links = tuple(service + suffix for service in services for suffix in ("_SERVICE_HOST", "_SERVICE_PORT", "_PORT"))
    given = {}
    for name, text in sorted(environment.items()):
        short = name.removeprefix(PREFIX)
        if not name.startswith(PREFIX) or name.startswith(links) or short in RESERVED:
            continue
        if short not in VARIABLES:
            raise UsageError(_unknown(short))
        if not text.strip():
            raise UsageError(f"{name} is set but empty; give it a value, or unset it")
        given[short.lower()] = text
    url, url_file, config, profile = (given.pop(name.lower(), None) for name in _TARGETS)
    if url is not None and url_file is not None:
        raise UsageError("HOLDFAST_URL and HOLDFAST_URL_FILE are both set; unset one of them")
    if profile is not None and config is None:
        raise UsageError("HOLDFAST_PROFILE is set, but HOLDFAST_CONFIG does not name the file that defines it")
    return Variables(url, url_file, config, profile, given)


def _unknown(name: str) -> str:
    """The sentence about a variable that is not read, with the nearest that is."""
    guess = parameters.nearest(name, [known.lower() for known in VARIABLES])
    every = ", ".join(PREFIX + known for known in sorted(VARIABLES))
    hint = f"did you mean {variable(guess)}?" if guess else f"known: {every}"
    return f"unknown environment variable {PREFIX + name!r}; {hint}"
