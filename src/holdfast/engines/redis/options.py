"""Options that are for the engine or its driver: checked by name, by scheme, and against what the URL says already."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from holdfast._core import parameters, redis_urls, zookeeper_options
from holdfast.errors import UsageError


def beside_url(engine: str, scheme: str, keywords: Mapping[str, Any], given: Mapping[str, str]) -> dict[str, Any]:
    """What the engine gets beside its target. ``given`` is what the URL said.

    That is the keywords, without those that have no effect, and from the URL what is for the engine itself: the rest
    of it stands in the target. (A ZooKeeper target has hosts and a path only.)
    """
    if engine == "zookeeper":
        return zookeeper_options.beside_url(keywords, given)
    names, extra = known(engine), parameters.EXTRA.get(engine, frozenset())
    for name in keywords:
        if name not in names:
            raise UsageError(parameters.unknown("option", name, parameters.OWN | names))
    used = {name: value for name, value in keywords.items() if name not in parameters.REDIS_WITHOUT_EFFECT}
    for name in used.keys() & given.keys():
        text, value = given[name], used[name]
        if str(value) != text and (name in parameters.SECRET or str(value).lower() != text.lower()):
            raise UsageError(f"{name} is given as a keyword and, differently, in the URL; remove one of them")
    _check_together(engine, scheme, {**given, **used})
    try:
        from_url = _normal({name: given[name] for name in extra & given.keys()})
    except ValueError as error:
        raise UsageError(f"URL parameter {error}") from None
    return {**_normal(used), **from_url}


def beside_client(engine: str, keywords: Mapping[str, Any]) -> dict[str, Any]:
    """What the engine gets beside an existing client, which brings all settings of connections itself."""
    allowed = frozenset({"sharded_pubsub"} if engine == "cluster" else ())
    if others := sorted(keywords.keys() - allowed):
        raise UsageError(f"connection settings come from the client object; set these on it: {', '.join(others)}")
    return _normal(keywords)


def known(engine: str) -> frozenset[str]:
    """The names of the engine's options. Some of ZooKeeper's are known only to be refused with a reason."""
    if engine == "zookeeper":
        return parameters.ZOOKEEPER_URL | parameters.ZOOKEEPER_OBJECTS | parameters.ZOOKEEPER_REFUSED.keys()
    if engine not in redis_urls.SCHEMES.values():
        return frozenset()
    redis = parameters.REDIS_URL | parameters.REDIS_OBJECTS | parameters.REDIS_WITHOUT_EFFECT
    return redis | parameters.EXTRA.get(engine, frozenset())


def _check_together(engine: str, scheme: str, every: Mapping[str, Any]) -> None:
    """Refuse what does not go together, or not with the scheme; ``every`` is all that URL and keywords say."""
    if "credential_provider" in every and every.keys() & {"username", "password"}:
        raise UsageError("give either credential_provider or username and password, not both")
    if "sentinel_username" in every and "sentinel_password" not in every:
        raise UsageError("sentinel_username is given without sentinel_password; add it")
    if scheme in redis_urls.BY_TLS and (tls := sorted(name for name in every if name.startswith("ssl_"))):
        by_tls = redis_urls.BY_TLS[scheme]
        raise UsageError(f"{tls[0]} is a setting of TLS, and {scheme}:// does not use it; write {by_tls}://")
    if scheme == "unix" and (tcp := sorted(every.keys() & parameters.REDIS_TCP_ONLY)):
        raise UsageError(f"{tcp[0]} is a setting of TCP, and unix:// does not use it")
    if engine == "cluster" and str(every.get("db", 0)) != "0":
        raise UsageError("a Redis Cluster has only database 0; remove the number from the URL or the option db")


def _normal(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options as the engine wants them; ValueError or TypeError for a value that is none."""
    normal = dict(options)
    if "sharded_pubsub" in normal:
        mode, modes = normal["sharded_pubsub"], ", ".join(parameters.SHARDED_PUBSUB)
        if not isinstance(mode, str):
            raise TypeError(f"sharded_pubsub is a {type(mode).__name__}: give one of {modes}")
        normal["sharded_pubsub"] = mode.strip().lower()
        if normal["sharded_pubsub"] not in parameters.SHARDED_PUBSUB:
            raise ValueError(f"sharded_pubsub is none of {modes}")
    return normal
