"""The options that every engine takes, for type checkers. Each engine adds its own, in its ``typed_options.py``."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypedDict

if TYPE_CHECKING:
    from holdfast._config.durations import Duration
    from holdfast.observer.events import Observer


class CommonOptions(TypedDict, total=False):
    """The options that every engine takes."""

    label: str | None
    namespace: str
    observer: Observer | None
    renew: bool
    replicas: int
    request_timeout: Duration
    token_ttl: Duration | None
    ttl: Duration
    unavailable_after: Duration


class Credentials(TypedDict, total=False):
    """Names that several engines share, written once: in a TypedDict that combines engines a name has one type."""

    username: str | None
    password: str | None
