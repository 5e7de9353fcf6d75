"""The options of ``locked``: their types for users, and their checks when decorating."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypedDict, get_args

from holdfast._core import habits, names
from holdfast._core.durations import Duration, check_timeout, check_ttl, parse_duration
from holdfast._core.policy import check_flag, check_replicas
from holdfast.decorator.nearest import suggestion
from holdfast.errors import UsageError

OnBusy = Literal["wait", "skip", "raise"]
#: ``on_busy`` without "skip", which has overloads of its own: its calls may return the default.
WaitOrRaise = Literal["wait", "raise"]


class LockedOptions(TypedDict, total=False):
    """Keywords of ``locked`` beside ``on_busy`` and ``default``. ``client.lock`` has all but the first three."""

    key: str | Callable[..., Any] | None
    prefix: str
    at_least: Duration
    timeout: Duration | None
    ttl: Duration
    renew: bool
    fair: bool
    reentrant: bool
    max_hold: Duration | None
    replicas: int
    on_lost: Callable[[Any], Any] | None
    require: Collection[str]


_KNOWN: Final = frozenset(LockedOptions.__annotations__) | {"on_busy", "default"}


@dataclass(frozen=True, slots=True)
class Plan:
    """How a call is locked: the policy of its lock, and what happens if the lock is busy."""

    prefix: str
    on_busy: OnBusy
    default: Any
    at_least: float  #: seconds from the grant
    policy: Mapping[str, Any] = field(default_factory=dict)  #: the given keywords of ``client.lock``


def check(on_busy: Any, default: Any, given: Mapping[str, Any]) -> Plan:
    """The plan for these options; UsageError, ValueError or TypeError if one is unknown or wrong."""
    for name in given:
        if name not in _KNOWN:
            if instead := "on_busy='raise' or 'skip' tries once" if name == "blocking" else habits.translation(name):
                raise UsageError(f"locked() has no {name}=: {instead}")
            raise UsageError(f"locked() has no option {name!r}; {suggestion(name, _KNOWN)}")
    if on_busy not in get_args(OnBusy):
        raise UsageError(f"on_busy is {on_busy!r}; give 'wait', 'skip' or 'raise'")
    if default is not None and on_busy != "skip":
        raise UsageError(f"default is what a skipped call returns; with on_busy={on_busy!r} none is skipped")
    policy = dict(given)
    prefix = policy.pop("prefix", "")
    if prefix != "":
        names.validate(prefix, what="prefix")
    at_least = parse_duration(policy.pop("at_least", 0), what="at_least")
    _check_policy(policy, at_least)
    if on_busy != "wait" and policy.get("timeout") is None:
        policy["timeout"] = 0  # one try
    return Plan(prefix, on_busy, default, at_least, policy)


def _check_policy(policy: Mapping[str, Any], at_least: float) -> None:
    """What can be checked without a client: ``@holdfast.locked`` has none when it decorates."""
    check_timeout(policy.get("timeout"))
    if "ttl" in policy:
        check_ttl(policy["ttl"])
    for flag in ("renew", "fair", "reentrant"):
        check_flag(policy.get(flag, True), flag)
    check_replicas(policy.get("replicas", 0))
    on_lost = policy.get("on_lost")
    if on_lost is not None and not callable(on_lost):
        raise TypeError(f"on_lost is a {type(on_lost).__name__}: give a callable")
    if policy.get("max_hold") is not None:
        max_hold = parse_duration(policy["max_hold"], what="max_hold")
        if at_least >= max_hold:
            raise UsageError(f"at_least ({at_least:g} s) is not shorter than max_hold ({max_hold:g} s)")


def check_lasting(at_least: float, renew: bool, ttl: float) -> None:
    """UsageError if the lock cannot be kept for ``at_least``: without renewal a lease ends with its ttl."""
    if at_least > ttl and not renew:
        raise UsageError(f"at_least ({at_least:g} s) is longer than ttl ({ttl:g} s), and the lease is not renewed")
