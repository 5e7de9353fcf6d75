"""What ``connect`` takes: options validated in one place, and the engine that a URL or a driver's client means.

Pure: no I/O, no driver is imported. Wrong Python values raise ValueError or TypeError; wrong texts (in a URL, the
environment, a file) and wrong combinations raise UsageError. No error repeats user info or a password.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Final, Literal, NamedTuple

from holdfast._core import names, parameters, urls
from holdfast._core.durations import Duration, check_timeout, check_ttl, parse_duration
from holdfast.errors import UsageError

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

EngineName = Literal["redis", "sqlite", "memory"]

#: Long enough that a counter outlives any pause between two holders; short enough that dead names go away.
DEFAULT_TOKEN_TTL: Final = 30 * 86400.0

_BOOLS: Final = dict.fromkeys(("1", "true", "yes", "on"), True) | dict.fromkeys(("0", "false", "no", "off"), False)


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
        if isinstance(self.replicas, bool) or not isinstance(self.replicas, int):
            raise TypeError(f"replicas is a {type(self.replicas).__name__}: give a number of replicas")
        if self.replicas < 0:
            raise ValueError(f"replicas is negative: {self.replicas}")
        if self.token_ttl is not None:
            token_ttl = parse_duration(self.token_ttl, what="token_ttl")
            if token_ttl < ttl:
                # The counter must not vanish while a lease that it numbered may still be believed in.
                raise ValueError(f"token_ttl ({token_ttl:g} s) is shorter than ttl ({ttl:g} s); None means for ever")
            object.__setattr__(self, "token_ttl", token_ttl)


assert {field.name for field in fields(ClientOptions)} == parameters.OWN


class Target(NamedTuple):
    """What to connect to. ``target`` is for the engine named: a URL or client, a path, a store's name."""

    engine: EngineName
    target: Any
    options: ClientOptions
    engine_options: dict[str, Any]

    def __repr__(self) -> str:
        shown = urls.redact(self.target) if isinstance(self.target, str) and self.engine == "redis" else self.target
        if not isinstance(shown, str | None):
            shown = f"<{type(shown).__module__}.{type(shown).__qualname__}>"  # its own repr may show a password
        return f"Target({self.engine}, {shown!r}, {self.options!r}, {sorted(self.engine_options)})"


def option_from_text(name: str, text: str, *, where: str) -> Any:
    """The value of our own option ``name`` written as text; UsageError naming ``where`` it stood."""
    lowered = text.strip().lower()
    try:
        if name == "namespace":
            return text
        if name == "renew":
            if lowered not in _BOOLS:
                raise ValueError("renew is neither true nor false")
            return _BOOLS[lowered]
        if name == "replicas":
            if not (lowered.isascii() and lowered.isdigit()):
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
    own = {name: value for name, value in keywords.items() if name in parameters.OWN}
    others = {name: value for name, value in keywords.items() if name not in parameters.OWN}
    if isinstance(url_or_client, str):
        parsed = urls.parse(url_or_client)
        for name, text in parsed.own.items():
            value = option_from_text(name, text, where=f"URL parameter {name}")
            if name in own and _normal(name, own[name]) != value:
                raise UsageError(f"{name} is given as a keyword and, differently, in the URL; remove one of them")
            own.setdefault(name, value)
        engine, target, scheme = parsed.engine, parsed.target, parsed.scheme
        engine_options = _engine_options(engine, scheme, others, parsed.given)
    elif url_or_client is None:
        engine, target = "sqlite", None
        engine_options = _engine_options(engine, "sqlite", others, {})
    else:
        _check_redis_client(url_or_client)
        engine, target, engine_options = "redis", url_or_client, {}
        if others:
            listed = ", ".join(sorted(others))
            raise UsageError(f"connection settings come from the client object; set these on it: {listed}")
    return Target(engine, target, ClientOptions(**own), engine_options)  # type: ignore[arg-type]


def _normal(name: str, value: Any) -> Any:
    """``value`` as ClientOptions would keep it, for comparison with what a text said."""
    if name in ("namespace", "renew", "replicas") or value is None:
        return value
    return parse_duration(value, what=name)


def _engine_options(engine: str, scheme: str, others: dict[str, Any], given: dict[str, str]) -> dict[str, Any]:
    """The driver's keywords, checked by name and against what the URL says already."""
    redis = parameters.REDIS_URL | parameters.REDIS_OBJECTS | parameters.REDIS_WITHOUT_EFFECT
    known = redis if engine == "redis" else frozenset[str]()
    for name in others:
        if name not in known:
            raise UsageError(parameters.unknown("option", name, parameters.OWN | known))
    used = {name: value for name, value in others.items() if name not in parameters.REDIS_WITHOUT_EFFECT}
    for name in used.keys() & given.keys():
        text, value = given[name], used[name]
        if str(value) != text and (name in parameters.SECRET or str(value).lower() != text.lower()):
            raise UsageError(f"{name} is given as a keyword and, differently, in the URL; remove one of them")
    every = used.keys() | given.keys()
    if "credential_provider" in every and every & {"username", "password"}:
        raise UsageError("give either credential_provider or username and password, not both")
    if scheme != "rediss" and (tls := sorted(name for name in every if name.startswith("ssl_"))):
        raise UsageError(f"{tls[0]} is a setting of TLS, and {scheme}:// does not use it; write rediss://")
    if scheme == "unix" and (tcp := sorted(every & parameters.REDIS_TCP_ONLY)):
        raise UsageError(f"{tcp[0]} is a setting of TCP, and unix:// does not use it")
    return used


def _check_redis_client(client: object) -> None:
    """Accept a client of redis-py, by the modules of its classes: the driver is not imported to find out."""
    kind = type(client)
    shown = f"{kind.__module__}.{kind.__qualname__}"
    packages = {base.__module__.partition(".")[0] for base in kind.__mro__}
    if "fakeredis" in packages:
        # It is a redis.Redis to Python; our own connections from its settings would go to a real localhost.
        raise UsageError(f"{shown} has no server behind it; for tests use holdfast.connect('memory:')")
    if "redis" in packages and kind.__name__ == "RedisCluster":
        raise UsageError("Redis Cluster is not yet available in this version of holdfast")
    pool = getattr(client, "connection_pool", None)
    if "redis" not in packages or pool is None:
        raise UsageError(f"{shown} is neither a URL nor a client of redis-py; give a URL such as redis://host:6379/0")
    if any(base.__name__ == "SentinelConnectionPool" for base in type(pool).__mro__):
        raise UsageError("Redis Sentinel is not yet available in this version of holdfast")
