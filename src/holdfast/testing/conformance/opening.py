"""Opening clients for the suite: by URL, or around an engine that ``connect`` does not know."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import Any, Final, Literal

import holdfast
from holdfast.options import ClientOptions, Target

#: Which half of the public API a case uses.
Api = Literal["sync", "async"]
#: The former name of Api.
Colour = Api

#: So long may a request take. Whether one that gets no answer is given up in time is not for these cases.
_PATIENCE: Final = 4.0

#: Renewed after a third of it, so there is time for that on a machine that stands still for a second.
_LASTING: Final = 2.0


@dataclass(frozen=True, slots=True)
class Source:
    """Where the locks are, and how slow it is there. Plain facts, so that a helper process can be told."""

    url: str
    #: "package.module:function", called with the URL and returning an Engine; None: the URL is one of holdfast's own.
    engine: str | None = None
    #: What the short times of the cases are multiplied by.
    pace: float = 1.0

    def __post_init__(self) -> None:
        if not self.pace >= 1:
            raise ValueError(f"pace is 1 or more, not {self.pace!r}: the cases are as quick as an engine may be asked")

    @property
    def lasting(self) -> float:
        """A ttl for what must not be lost."""
        return self.paced(_LASTING)

    def paced(self, seconds: float) -> float:
        """A short ttl, wait or deadline of a case, for an engine as slow as this one: in whole milliseconds."""
        return round(seconds * self.pace, 3)

    def open(self, api: Api, **keywords: Any) -> Any:
        """A new Client or AsyncClient. Does no I/O."""
        keywords = {"request_timeout": self.paced(_PATIENCE)} | keywords
        if self.engine is None:
            return (holdfast.connect if api == "sync" else holdfast.aio.connect)(self.url, **keywords)
        module, _, function = self.engine.partition(":")
        make_engine = getattr(importlib.import_module(module), function)
        kind = holdfast.Client if api == "sync" else holdfast.aio.AsyncClient
        client = kind(Target("memory", "", ClientOptions(**keywords), {}))
        client._engine = make_engine(self.url)  # before first use: nothing was opened on the other one
        return client
