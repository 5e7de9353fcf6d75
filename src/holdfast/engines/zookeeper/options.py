"""Options of the ZooKeeper engine: what a URL and keywords say, made into what kazoo takes. Pure: without kazoo.

The engine gets keywords of ``KazooClient`` (``auth_data``, ``sasl_options``, ``default_acl``, those of TLS,
``randomize_hosts``) and two of ours: ``tick``, the ensemble's tickTime in seconds, and ``acl``, "open" or "creator",
unless there is a ``default_acl``.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, Final

from holdfast._core import parameters
from holdfast._core.durations import parse_duration
from holdfast.errors import UsageError

#: ZooKeeper's own default.
DEFAULT_TICK: Final = 2.0

#: Who may touch the nodes that we create: everybody, or only those who are authenticated as we are.
ACLS: Final = ("open", "creator")

#: What ZooKeeper's servers speak; kazoo's library for it knows more.
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
    """A text that does not show itself in a repr: kazoo logs its requests, the authentication among them."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "'…'"


def beside_url(keywords: Mapping[str, Any], given: Mapping[str, str]) -> dict[str, Any]:
    """The engine's options. ``given`` is what the URL said, as texts.

    UsageError for what is unknown, wrong in the URL, or does not go together; ValueError or TypeError for the value of
    a keyword that is none.
    """
    known = parameters.ZOOKEEPER_URL | parameters.ZOOKEEPER_OBJECTS
    for name in (*keywords, *given):
        if name in parameters.ZOOKEEPER_REFUSED:
            raise UsageError(f"{name} is not an option here: {parameters.ZOOKEEPER_REFUSED[name]}")
        if name not in known:
            raise UsageError(parameters.unknown("option", name, parameters.OWN | known))
    try:
        from_url = {name: _from_text(name, text) for name, text in given.items()}
    except ValueError as error:
        raise UsageError(f"URL parameter {error}") from None
    used = {name: _from_object(name, value) for name, value in keywords.items()}
    for name in used.keys() & from_url.keys():
        if used[name] != from_url[name]:
            raise UsageError(f"{name} is given as a keyword and, differently, in the URL; remove one of them")
    every = {**from_url, **used}
    _check_tls(every)
    options = {name: every[name] for name in every.keys() & (_TLS | {"randomize_hosts", "use_ssl", "default_acl"})}
    if every.get("use_ssl"):
        # kazoo's own default would take any certificate of the CA for any host.
        options.setdefault("check_hostname", every.get("verify_certs", True))
    options |= {"tick": every.get("tick", DEFAULT_TICK), **_digest(every), **_sasl(every)}
    return {**options, **_acl(every, options)}


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
    if name in parameters.ZOOKEEPER_OBJECTS:
        return _OBJECTS[name](value)
    if name in _FILES and isinstance(value, os.PathLike):
        value = os.fspath(value)
    if not isinstance(value, str):
        raise TypeError(f"{name} is a {type(value).__name__}: give a str")
    if not value:
        raise ValueError(f"{name} is empty; remove it")  # kazoo would take it for not given
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
        # kazoo would use neither of them, without a word.
        raise UsageError("certfile and keyfile go together; if both are in one file, name it twice")
    if "keyfile_password" in every and "keyfile" not in every:
        raise UsageError("keyfile_password is given without keyfile; add it")


def _digest(every: Mapping[str, Any]) -> dict[str, Any]:
    """What proves who we are, by ZooKeeper's scheme "digest" or by others that kazoo is told."""
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
    """Who may touch our nodes: those who are authenticated as we are, if we are at all."""
    if "default_acl" in every:
        if "acl" in every:
            raise UsageError("give either acl or default_acl, not both")
        return {}
    authenticated = "auth_data" in options or "sasl_options" in options
    acl = every.get("acl", "creator" if authenticated else "open")
    if acl == "creator" and not (authenticated or "certfile" in options):
        raise UsageError("acl=creator needs a creator whom ZooKeeper knows: add a user and password, SASL or certfile")
    return {"acl": acl}
