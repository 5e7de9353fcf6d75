"""Opening clients for the suite: by URL, or around an engine that ``connect`` does not know."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import Any, Final, Literal

import holdfast
from holdfast._config.options import ClientOptions
from holdfast._config.targets import Target

#: Which half of the public API a case uses.
Api = Literal["sync", "async"]

#: Long: these cases do not test whether a request without an answer is given up in time.
_REQUEST_TIMEOUT: Final = 4.0

#: A ttl of which a third is still enough to renew after a scheduler stall of a second.
_LASTING: Final = 2.0


@dataclass(frozen=True, slots=True)
class Source:
    """The engine under test, and how slow it is. Plain data, so that it can be sent to a helper process."""

    url: str
    #: "package.module:function", called with the URL and returning an Engine; None: the URL is one of holdfast's own.
    engine: str | None = None
    #: The factor for the short times of the cases.
    pace: float = 1.0

    def __post_init__(self) -> None:
        if not self.pace >= 1:
            raise ValueError(f"pace is 1 or more, not {self.pace!r}: the times of the cases cannot be shorter")

    @property
    def lasting(self) -> float:
        """A ttl for leases that must not be lost."""
        return self.paced(_LASTING)

    def paced(self, seconds: float) -> float:
        """A short ttl, wait or deadline of a case, multiplied by ``pace``, in whole milliseconds."""
        return round(seconds * self.pace, 3)

    def open(self, api: Api, **keywords: Any) -> Any:
        """A new Client or AsyncClient. Does no I/O."""
        keywords = {"request_timeout": self.paced(_REQUEST_TIMEOUT)} | keywords
        if self.engine is None:
            return (holdfast.connect if api == "sync" else holdfast.aio.connect)(self.url, **keywords)
        module, _, function = self.engine.partition(":")
        make_engine = getattr(importlib.import_module(module), function)
        kind = holdfast.Client if api == "sync" else holdfast.aio.AsyncClient
        client = kind(Target("memory", "", ClientOptions(**keywords), {}))
        client._engine = make_engine(self.url)  # before first use, so nothing was opened on the memory engine
        return client
