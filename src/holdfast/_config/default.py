"""The result of reading a source of settings: the target, the options, and the origin of each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

from holdfast._config.targets import parse_target
from holdfast.errors import InvalidName, UsageError

Source = Literal["configure", "environment", "file", "embedded"]


class Default(NamedTuple):
    """The default target. ``url`` may also be a driver's client; None means the embedded engine."""

    url: Any
    keywords: dict[str, Any]
    source: Source
    #: Where each of them was set: "url", "profile" and the keywords. Options without an entry have their defaults.
    origins: Mapping[str, str]
    #: The chosen profile, and the settings file, if the target is from one.
    profile: str | None = None
    file: str | None = None

    def __repr__(self) -> str:  # the URL and the keywords may contain a password
        return f"Default(source={self.source!r}, keywords={sorted(self.keywords)})"


def checked(url: str | None, keywords: dict[str, Any], where: str) -> dict[str, Any]:
    """``keywords``, valid for ``url``; else UsageError that names where they were set."""
    try:
        parse_target(url, keywords)
    except (UsageError, InvalidName, ValueError, TypeError) as error:
        raise UsageError(f"{where}: {error}") from None
    return keywords
