"""holdfast's own options of ``connect``, validated in one place.

Wrong Python values raise ValueError or TypeError; wrong texts (in a URL, the environment, a file) raise UsageError.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, Final

from holdfast._config import names, parameters
from holdfast._config.durations import check_ttl, parse_duration
from holdfast._config.labels import check_label
from holdfast.errors import UsageError

if TYPE_CHECKING:
    from holdfast.observer.events import Observer

#: Long enough that a counter outlives any pause between two holders; short enough that unused names disappear.
DEFAULT_TOKEN_TTL: Final = 30 * 86400.0


def check_replicas(replicas: int) -> int:
    """A number of replicas, or the error that says what is wrong with it."""
    if isinstance(replicas, bool) or not isinstance(replicas, int):
        raise TypeError(f"replicas is a {type(replicas).__name__}: give a number of replicas")
    if replicas < 0:
        raise ValueError(f"replicas is negative: {replicas}")
    return replicas


def check_flag(value: bool, what: str) -> bool:
    """A bool, or the error that says what is wrong: ``renew="no"`` would count as True."""
    if not isinstance(value, bool):
        raise TypeError(f"{what} is a {type(value).__name__}: give True or False")
    return value


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
        check_flag(self.renew, "renew")
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
                # The counter must not expire before a lease that has a token from it.
                raise ValueError(f"token_ttl ({token_ttl:g} s) is shorter than ttl ({ttl:g} s); None means for ever")
            object.__setattr__(self, "token_ttl", token_ttl)
        if self.observer is not None:
            from holdfast.observer.delivery import check_observer  # here, not above: few programs have one

            check_observer(self.observer)


assert {each.name for each in fields(ClientOptions)} == parameters.OWN | parameters.PYTHON_ONLY


def option_from_text(name: str, text: str, *, where: str) -> Any:
    """The value of our own option ``name`` written as text; UsageError that names its origin ``where``."""
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
