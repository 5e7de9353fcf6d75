"""Which module makes which engine. Drivers are imported when an engine is made, never before."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Final

from holdfast._version import DISTRIBUTION
from holdfast.engines.base import Engine, EngineFactory
from holdfast.errors import UsageError
from holdfast.options import Target

_MODULES: Final[Mapping[str, str]] = {
    "cluster": "holdfast.engines.redis.cluster",
    "memory": "holdfast.engines.memory",
    "redis": "holdfast.engines.redis.engine",
    "redlock": "holdfast.engines.redis.redlock",
    "sentinel": "holdfast.engines.redis.sentinel",
    "sqlite": "holdfast.engines.sqlite.engine",
    "zookeeper": "holdfast.engines.zookeeper",
}
#: The engines that can have a grant acknowledged by replicas.
_REPLICATED: Final = frozenset({"redis", "sentinel", "cluster", "redlock"})
#: The engines whose locks live as long as a session does: the client's ttl is its time-out.
_BY_SESSION: Final = frozenset({"zookeeper"})
_DRIVERS: Final[Mapping[str, str]] = {"redis": "redis", "hiredis": "redis", "kazoo": "zookeeper"}


def make_engine(target: Target) -> Engine:
    """The engine for a parsed target. Does no I/O."""
    try:
        factory: EngineFactory = importlib.import_module(_MODULES[target.engine]).connect
    except ImportError as missing:
        extra = _DRIVERS.get((missing.name or "").partition(".")[0])
        if extra is None:
            raise
        raise UsageError(
            f"the {target.engine} engine needs its driver: pip install '{DISTRIBUTION}[{extra}]'"
        ) from missing
    options = {**target.engine_options, "token_ttl": target.options.token_ttl}
    if target.engine in _REPLICATED:
        options["replicas"] = target.options.replicas
    if target.engine in _BY_SESSION:
        options["ttl"] = target.options.ttl
    return factory(target.target, options)
