"""What was found out about an ensemble. Data only: gathering it is ``gather``'s, judging it the ``checks``'."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from holdfast._config.options import ClientOptions


@dataclass(frozen=True, slots=True)
class Server:
    """One host of the URL. Whatever it did not tell is absent, and ``withheld`` says why."""

    name: str
    failure: str = ""  #: why it gave us no session
    refused: bool = False  #: the failure is a refusal (password, certificate), not silence
    said: Mapping[str, str] = field(default_factory=dict)  #: by ``srvr``
    settings: Mapping[str, str] = field(default_factory=dict)  #: by ``conf``
    withheld: Mapping[str, str] = field(default_factory=dict)  #: word -> why it was not answered
    idle: bool = False  #: it runs, and serves nobody
    session: float | None = None  #: the time-out that it granted, in seconds
    answer_seconds: float | None = None  #: there and back to the leader
    stranger: bool = False  #: it does not know what another host of the URL was told

    @property
    def mode(self) -> str:
        """``leader``, ``follower``, ``observer``, ``standalone``, ``read-only``; empty if it did not tell."""
        return self.said.get("Mode", "")

    @property
    def tick(self) -> float | None:
        return self._seconds("tickTime")

    def limits(self) -> tuple[float | None, float | None]:
        """The shortest and the longest session that it allows, if it told."""
        return self._seconds("minSessionTimeout"), self._seconds("maxSessionTimeout")

    def _seconds(self, setting: str) -> float | None:
        text = self.settings.get(setting, "")
        return int(text) / 1000.0 if text.isdecimal() else None


@dataclass(frozen=True, slots=True)
class Ensemble:
    """All that was found out. ``base``: the node under which the locks live."""

    options: ClientOptions
    tick: float  #: as the URL has it
    base: str
    open_to_all: bool  #: who may remove our nodes: everybody
    servers: tuple[Server, ...]
    voters: int = 0  #: servers that elect a leader, named or not; 0: not told, or no ensemble
    rehearsed: bool = False  #: a lock was taken, looked at and released
    refusal: str = ""  #: why not
    unlisted: str = ""  #: why the nodes under ``base`` may not be listed

    @property
    def alive(self) -> tuple[Server, ...]:
        return tuple(server for server in self.servers if not server.failure)
