"""The facts about an ensemble. Data only: ``gather`` gathers them, ``checks`` judges them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from holdfast._config.options import ClientOptions


@dataclass(frozen=True, slots=True)
class Server:
    """One host of the URL. Facts that it did not report are absent, and ``withheld`` says why."""

    name: str
    failure: str = ""  #: why it gave us no session
    refused: bool = False  #: the failure is a refusal (password, certificate), not a missing answer
    said: Mapping[str, str] = field(default_factory=dict)  #: by ``srvr``
    settings: Mapping[str, str] = field(default_factory=dict)  #: by ``conf``
    withheld: Mapping[str, str] = field(default_factory=dict)  #: word -> why it was not answered
    idle: bool = False  #: it runs, but serves no client
    session: float | None = None  #: the time-out that it granted, in seconds
    answer_seconds: float | None = None  #: one round trip to the leader
    stranger: bool = False  #: it belongs to another ensemble than the other hosts of the URL

    @property
    def mode(self) -> str:
        """``leader``, ``follower``, ``observer``, ``standalone``, ``read-only``; empty if unknown."""
        return self.said.get("Mode", "")

    @property
    def tick(self) -> float | None:
        return self._seconds("tickTime")

    def limits(self) -> tuple[float | None, float | None]:
        """The shortest and the longest session that it allows, if known."""
        return self._seconds("minSessionTimeout"), self._seconds("maxSessionTimeout")

    def _seconds(self, setting: str) -> float | None:
        text = self.settings.get(setting, "")
        return int(text) / 1000.0 if text.isdecimal() else None


@dataclass(frozen=True, slots=True)
class Ensemble:
    """Everything that is known. ``base``: the node under which the locks are."""

    options: ClientOptions
    tick: float  #: as the URL has it
    base: str
    open_to_all: bool  #: every client may remove the nodes of locks
    servers: tuple[Server, ...]
    voters: int = 0  #: servers that elect a leader, whether or not the URL names them; 0: unknown, or no ensemble
    tried: bool = False  #: a lock was acquired, inspected and released
    refusal: str = ""  #: why that failed
    unlisted: str = ""  #: why the nodes under ``base`` may not be listed

    @property
    def alive(self) -> tuple[Server, ...]:
        return tuple(server for server in self.servers if not server.failure)
