"""What ``connect`` takes: options validated in one place, and the engine that a URL or a driver's client means.

Pure: no I/O, no driver is imported. Wrong Python values raise ValueError or TypeError; wrong texts (in a URL, the
environment, a file) and wrong combinations raise UsageError. No error repeats user info or a password.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

from holdfast._core import driver_clients, engine_options, names, parameters, urls
from holdfast._core.durations import Duration, check_timeout, check_ttl, parse_duration
from holdfast._core.labels import check_label
from holdfast._core.policy import check_replicas
from holdfast._core.sentinel_target import SentinelTarget
from holdfast._core.zookeeper_target import ZooKeeperTarget, refuse_client
from holdfast.errors import UsageError

if TYPE_CHECKING:
    from holdfast.observer.events import Observer

__all__ = [
    "ClientOptions",
    "Duration",
    "Target",
    "check_timeout",
    "check_ttl",
    "option_from_text",
    "parse_duration",
    "parse_target",
]

EngineName = Literal["redis", "sentinel", "cluster", "redlock", "zookeeper", "sqlite", "memory"]

#: Long enough that a counter outlives any pause between two holders; short enough that dead names go away.
DEFAULT_TOKEN_TTL: Final = 30 * 86400.0


@dataclass(frozen=True, slots=True)
class ClientOptions:
    """The keywords of ``connect`` that are holdfast's own. Durations are seconds once constructed."""

    ttl: float = 30.0
    namespace: str = ""
    renew: bool = True
    request_timeout: float = 1.0
    unavailable_after: float = 3.0
    replicas: int = 0
    #: How long a fencing counter outlives its last grant; None: for ever.
    token_ttl: float | None = DEFAULT_TOKEN_TTL
    #: Shown by ``inspect`` beside what this client holds and waits for.
    label: str | None = None
    #: Called with each event. Python only: a URL, a variable or a file cannot name one.
    observer: Observer | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        ttl = check_ttl(self.ttl)
        object.__setattr__(self, "ttl", ttl)
        if self.namespace != "":
            names.validate(self.namespace, what="namespace")
        if not isinstance(self.renew, bool):
            raise TypeError(f"renew is a {type(self.renew).__name__}: give True or False")
        for name in ("request_timeout", "unavailable_after"):
            seconds = parse_duration(getattr(self, name), what=name)
            if seconds == 0:
                raise ValueError(f"{name} is 0: no engine can answer in no time")
            object.__setattr__(self, name, seconds)
        check_replicas(self.replicas)
        if self.label is not None:
            check_label(self.label)
        if self.token_ttl is not None:
            token_ttl = parse_duration(self.token_ttl, what="token_ttl")
            if token_ttl < ttl:
                # The counter must not vanish while a lease that it numbered may still be believed in.
                raise ValueError(f"token_ttl ({token_ttl:g} s) is shorter than ttl ({ttl:g} s); None means for ever")
            object.__setattr__(self, "token_ttl", token_ttl)
        if self.observer is not None:
            from holdfast.observer.delivery import check_observer  # here, not above: few programs have one

            check_observer(self.observer)


assert {each.name for each in fields(ClientOptions)} == parameters.OWN | parameters.PYTHON_ONLY


class Target(NamedTuple):
    """What to connect to. ``target`` is for the engine named: a URL, several, a client, a path, a store's name."""

    engine: EngineName
    target: Any
    options: ClientOptions
    engine_options: dict[str, Any]

    def __repr__(self) -> str:
        return f"Target({self.engine}, {self._shown()}, {self.options!r}, {sorted(self.engine_options)})"

    def _shown(self) -> str:
        target = self.target
        if self.engine in ("sqlite", "memory") or isinstance(target, (SentinelTarget, ZooKeeperTarget)):
            return repr(target)
        if isinstance(target, str):
            return repr(urls.redact(target))
        if isinstance(target, tuple):
            return repr([urls.redact(url) for url in target])
        return f"<{type(target).__module__}.{type(target).__qualname__}>"  # its own repr may show a password


def option_from_text(name: str, text: str, *, where: str) -> Any:
    """The value of our own option ``name`` written as text; UsageError naming ``where`` it stood."""
    lowered = text.strip().lower()
    try:
        if name == "namespace":
            return text
        if name == "label":
            return check_label(text)
        if name == "renew":
            if lowered not in parameters.BOOLS:
                raise ValueError("renew is neither true nor false")
            return parameters.BOOLS[lowered]
        if name == "replicas":
            if not (lowered.isascii() and lowered.isdigit() and len(lowered) < 10):
                raise ValueError("replicas is not a whole number")
            return int(lowered)
        if name == "token_ttl" and lowered == "none":
            return None
        if name == "ttl":
            return check_ttl(text)
        return parse_duration(text, what=name)
    except ValueError as error:
        raise UsageError(f"{where}: {error}") from None


def parse_target(url_or_client: Any, keywords: Mapping[str, Any]) -> Target:
    """Which engine, with which settings. ``keywords`` are those that the caller really wrote, not defaults.

    An option given both in the URL and as a keyword must be the same in both; else UsageError: guessing which one
    was meant could put two processes on different locks.
    """
    ours = parameters.OWN | parameters.PYTHON_ONLY
    own = {name: value for name, value in keywords.items() if name in ours}
    others = {name: value for name, value in keywords.items() if name not in ours}
    if isinstance(url_or_client, str):
        parsed = urls.parse(url_or_client)
        for name, text in parsed.own.items():
            value = option_from_text(name, text, where=f"URL parameter {name}")
            if name in own and _normal(name, own[name]) != value:
                raise UsageError(f"{name} is given as a keyword and, differently, in the URL; remove one of them")
            own.setdefault(name, value)
        engine, target = parsed.engine, parsed.target
        options = engine_options.beside_url(engine, parsed.scheme, others, parsed.given)
    elif url_or_client is None:
        engine, target = "sqlite", None
        options = engine_options.beside_url(engine, "sqlite", others, {})
    else:
        refuse_client(url_or_client)
        engine, target = driver_clients.engine_of(url_or_client), url_or_client
        options = engine_options.beside_client(engine, others)
    return Target(engine, target, ClientOptions(**own), options)  # type: ignore[arg-type]


def _normal(name: str, value: Any) -> Any:
    """``value`` as ClientOptions would keep it, for comparison with what a text said."""
    if name in ("label", "namespace", "renew", "replicas") or value is None:
        return value
    return parse_duration(value, what=name)
