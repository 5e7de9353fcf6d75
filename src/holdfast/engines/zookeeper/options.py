"""Options of the ZooKeeper engine: from a URL and keywords to the settings of kazoo. Pure: without kazoo.

The engine gets keywords of ``KazooClient`` (``auth_data``, ``sasl_options``, ``default_acl``, those of TLS,
``randomize_hosts``) and two of holdfast's: ``tick``, the ensemble's tickTime in seconds, and ``acl``, "open" or
"creator", unless there is a ``default_acl``. The lists of names are those of kazoo 2.11; a test compares them with the
installed version.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, Final

from holdfast._config import parameters
from holdfast._config.durations import parse_duration
from holdfast.errors import UsageError

#: Parameters of a zookeeper:// URL, beside holdfast's own. The names are kazoo's, except for digest and SASL
#: credentials, which kazoo takes as lists and dicts, and for ``acl`` and ``tick``.
URL_OPTIONS: Final = frozenset(
    {
        "acl", "ca", "certfile", "check_hostname", "keyfile", "keyfile_password", "password", "randomize_hosts",
        "sasl_mechanism", "sasl_password", "sasl_service", "sasl_username", "tick", "use_ssl", "username",
        "verify_certs",
    }
)  # fmt: skip

#: Settings of kazoo that only Python can express.
OBJECT_OPTIONS: Final = frozenset({"auth_data", "default_acl", "sasl_options"})

#: Settings of kazoo that the engine makes itself, each with the reason or the remedy.
REFUSED_OPTIONS: Final[Mapping[str, str]] = {
    "client_id": "holdfast opens sessions of its own and joins none",
    "command_retry": "holdfast repeats requests itself, since a repeated create is a second contender",
    "connection_retry": "holdfast reconnects itself, for as long as unavailable_after",
    "handler": "holdfast brings its own",
    "hosts": "write them in the URL",
    "logger": "use the logger 'holdfast.zookeeper'",
    "read_only": "a lock needs a server that takes writes",
    "timeout": "the session's time-out is ttl",
}

#: ZooKeeper's own default.
DEFAULT_TICK: Final = 2.0

#: The clients with rights on the nodes that the engine creates: all, or only those authenticated as this one.
ACLS: Final = ("open", "creator")

#: The mechanisms of ZooKeeper's servers; kazoo's SASL library has more.
MECHANISMS: Final = ("DIGEST-MD5", "GSSAPI")

_BOOLS: Final = frozenset({"check_hostname", "randomize_hosts", "use_ssl", "verify_certs"})
_FILES: Final = frozenset({"ca", "certfile", "keyfile"})
_TLS: Final = frozenset({"ca", "certfile", "check_hostname", "keyfile", "keyfile_password", "verify_certs"})
_SECRET: Final = frozenset({"keyfile_password", "password", "sasl_password"})
_SASL: Final = {
    "sasl_mechanism": "mechanism",
    "sasl_username": "username",
    "sasl_password": "password",
    "sasl_service": "service",
}


class Secret(str):
    """A text whose repr is masked: kazoo logs its requests, including authentication."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "'…'"


def beside_url(keywords: Mapping[str, Any], given: Mapping[str, str]) -> dict[str, Any]:
    """The engine's options. ``given`` are the parameters of the URL, as texts.

    UsageError for unknown names, wrong texts in the URL, and options that exclude each other; ValueError or TypeError
    for a wrong value of a keyword.
    """
    known = URL_OPTIONS | OBJECT_OPTIONS
    for name in (*keywords, *given):
        if name in REFUSED_OPTIONS:
            raise UsageError(f"{name} is not an option here: {REFUSED_OPTIONS[name]}")
    parameters.refuse_unknown_options((*keywords, *given), known)
    try:
        from_url = {name: _from_text(name, text) for name, text in given.items()}
    except ValueError as error:
        raise UsageError(f"URL parameter {error}") from None
    used = {name: _from_object(name, value) for name, value in keywords.items()}
    for name in used.keys() & from_url.keys():
        if used[name] != from_url[name]:
            raise parameters.contradiction(name)
    every = {**from_url, **used}
    _check_tls(every)
    options = {name: every[name] for name in every.keys() & (_TLS | {"randomize_hosts", "use_ssl", "default_acl"})}
    if every.get("use_ssl"):
        # kazoo's own default accepts any certificate of the CA for any host.
        options.setdefault("check_hostname", every.get("verify_certs", True))
    options |= {"tick": every.get("tick", DEFAULT_TICK), **_digest(every), **_sasl(every)}
    return {**options, **_acl(every, options)}


def option_names(engine: str) -> frozenset[str]:
    """The names of the options, also of those that are refused with a reason."""
    return URL_OPTIONS | OBJECT_OPTIONS | REFUSED_OPTIONS.keys()


def _from_text(name: str, text: str) -> Any:
    if name not in _BOOLS:
        return _from_object(name, text)
    if text.strip().lower() not in parameters.BOOLS:
        raise ValueError(f"{name} is neither true nor false")
    return parameters.BOOLS[text.strip().lower()]


def _from_object(name: str, value: Any) -> Any:
    """The value as it is kept. No error shows it."""
    if name in _BOOLS:
        if not isinstance(value, bool):
            raise TypeError(f"{name} is a {type(value).__name__}: give True or False")
        return value
    if name == "tick":
        seconds = parse_duration(value, what=name)
        if seconds == 0:
            raise ValueError("tick is 0; give the tickTime of the ensemble")
        return seconds
    if name in OBJECT_OPTIONS:
        return _OBJECTS[name](value)
    if name in _FILES and isinstance(value, os.PathLike):
        value = os.fspath(value)
    if not isinstance(value, str):
        raise TypeError(f"{name} is a {type(value).__name__}: give a str")
    if not value:
        raise ValueError(f"{name} is empty; remove it")  # kazoo would treat it as not given
    if name in ("acl", "sasl_mechanism"):
        return _one_of(name, value, ACLS if name == "acl" else MECHANISMS)
    return Secret(value) if name in _SECRET else value


def _one_of(name: str, value: str, choices: tuple[str, ...]) -> str:
    for choice in choices:
        if value.strip().lower() == choice.lower():
            return choice
    raise ValueError(f"{name} is none of {', '.join(choices)}")


def _auth_data(value: Any) -> tuple[tuple[str, Secret], ...]:
    if not isinstance(value, (list, tuple, set, frozenset)):
        raise TypeError(f"auth_data is a {type(value).__name__}: give a list of pairs of texts")
    found = []
    for pair in value:
        if not (isinstance(pair, (list, tuple)) and len(pair) == 2 and all(isinstance(text, str) for text in pair)):
            raise TypeError("auth_data has an entry that is no pair of texts, as in ('digest', 'user:password')")
        scheme, credential = pair
        if scheme == "sasl":
            raise ValueError("auth_data is not for SASL; give sasl_options")
        found.append((scheme, Secret(credential)))
    return tuple(found)


def _sasl_options(value: Any) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise TypeError(f"sasl_options is a {type(value).__name__}: give a dict")
    if "mechanism" not in value:
        raise ValueError(f"sasl_options names no mechanism; add one of {', '.join(MECHANISMS)}")
    return {name: Secret(text) if name == "password" else text for name, text in value.items()}


def _default_acl(value: Any) -> list[Any]:
    if not isinstance(value, (list, tuple)) or not value:
        raise TypeError("default_acl is no list of kazoo's ACLs with at least one in it")
    return list(value)


_OBJECTS: Final = {"auth_data": _auth_data, "sasl_options": _sasl_options, "default_acl": _default_acl}


def _check_tls(every: Mapping[str, Any]) -> None:
    if not every.get("use_ssl") and (settings := sorted(every.keys() & _TLS)):
        raise UsageError(f"{settings[0]} is a setting of TLS, which is not used; add use_ssl=true")
    if every.get("check_hostname") and not every.get("verify_certs", True):
        raise UsageError(
            "check_hostname checks a name in a certificate, and verify_certs=false trusts none; remove one"
        )
    if ("certfile" in every) != ("keyfile" in every):
        # kazoo would silently use neither of them.
        raise UsageError("certfile and keyfile go together; if both are in one file, name it twice")
    if "keyfile_password" in every and "keyfile" not in every:
        raise UsageError("keyfile_password is given without keyfile; add it")


def _digest(every: Mapping[str, Any]) -> dict[str, Any]:
    """Credentials for ZooKeeper's scheme "digest", and those of ``auth_data`` for other schemes."""
    user, password = every.get("username"), every.get("password")
    found = every.get("auth_data", ())
    if user is not None or password is not None:
        if user is None or password is None:
            raise UsageError(
                "digest authentication needs a username and a password, as in zookeeper://user:password@host"
            )
        if ":" in user:
            raise UsageError("a username of ZooKeeper has no ':', since the password begins there")
        found = (("digest", Secret(f"{user}:{password}")), *found)
    return {"auth_data": found} if found else {}


def _sasl(every: Mapping[str, Any]) -> dict[str, Any]:
    parts = {key: every[name] for name, key in _SASL.items() if name in every}
    if "sasl_options" in every:
        if parts:
            raise UsageError("give either sasl_options or sasl_mechanism, sasl_username, …, not both")
        return {"sasl_options": every["sasl_options"]}
    if not parts:
        return {}
    if "mechanism" not in parts:
        raise UsageError(f"SASL needs sasl_mechanism: one of {', '.join(MECHANISMS)}")
    if parts["mechanism"] == "DIGEST-MD5" and not {"username", "password"} <= parts.keys():
        raise UsageError("SASL by DIGEST-MD5 needs sasl_username and sasl_password")
    return {"sasl_options": parts}


def _acl(every: Mapping[str, Any], options: Mapping[str, Any]) -> dict[str, Any]:
    """The ACL of the nodes: for clients authenticated as this one, or for every client if this one is not."""
    if "default_acl" in every:
        if "acl" in every:
            raise UsageError("give either acl or default_acl, not both")
        return {}
    authenticated = "auth_data" in options or "sasl_options" in options
    acl = every.get("acl", "creator" if authenticated else "open")
    if acl == "creator" and not (authenticated or "certfile" in options):
        raise UsageError("acl=creator needs a client that is authenticated: add a user and password, SASL or certfile")
    return {"acl": acl}
