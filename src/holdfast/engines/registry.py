"""The engines that ``connect`` knows: a row for each built-in one, and entry points of other distributions.

Rows name modules instead of importing them, so that a driver is imported only when its engine is made, and a URL
grammar only when a URL of its scheme is read. Core and configuration name no engine; ``connect_options.py`` names the
option types of all.

Another distribution adds an engine by an entry point of the group ``holdfast.engines``: its name is the URL scheme, its
object is an :class:`holdfast.engines.base.EngineFactory`. Entry points are looked up only for schemes without a row.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from holdfast._version import DISTRIBUTION
from holdfast.errors import UsageError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

    from holdfast._config.targets import Target
    from holdfast.engines.base import Engine, EngineFactory


class BuiltIn(NamedTuple):
    """One built-in engine."""

    name: str
    schemes: tuple[str, ...]
    #: The module that reads its URLs and options: a :class:`holdfast._config.url_parts.URLGrammar`. Imports no driver.
    url: str
    #: The module whose ``connect`` is the :class:`holdfast.engines.base.EngineFactory`. Imports the driver.
    factory: str
    #: The extra that installs the driver, and the driver's top-level packages.
    extra: str | None = None
    drivers: frozenset[str] = frozenset()
    #: Those of the client's own options that the factory is given.
    client_options: tuple[str, ...] = ("token_ttl",)
    #: The module that recognises the driver's clients, a :class:`holdfast._config.url_parts.ClientDetection`, and the
    #: top-level packages that define their classes.
    client_detection: str | None = None
    client_packages: frozenset[str] = frozenset()
    #: Its URLs name a path or a store and have neither host nor user info: they may be shown as they are.
    local: bool = False


_REDIS: Final = BuiltIn(
    name="redis",
    schemes=("redis", "rediss", "unix"),
    url="holdfast.engines.redis.url",
    factory="holdfast.engines.redis.engine",
    extra="redis",
    drivers=frozenset({"redis", "hiredis"}),
    client_options=("token_ttl", "replicas"),
)

BUILT_IN: Final = (
    _REDIS._replace(
        client_detection="holdfast.engines.redis.client_detection",
        client_packages=frozenset({"redis", "fakeredis"}),
    ),
    _REDIS._replace(
        name="sentinel",
        schemes=("redis+sentinel", "rediss+sentinel"),
        factory="holdfast.engines.redis.sentinel",
    ),
    _REDIS._replace(
        name="cluster",
        schemes=("redis+cluster", "rediss+cluster"),
        factory="holdfast.engines.redis.cluster",
    ),
    _REDIS._replace(
        name="redlock",
        schemes=("redlock", "redlocks"),
        factory="holdfast.engines.redis.redlock",
    ),
    BuiltIn(
        name="zookeeper",
        schemes=("zookeeper",),
        url="holdfast.engines.zookeeper.url",
        factory="holdfast.engines.zookeeper.engine",
        extra="zookeeper",
        drivers=frozenset({"kazoo"}),
        client_options=("token_ttl", "ttl"),
        client_detection="holdfast.engines.zookeeper.url",
        client_packages=frozenset({"kazoo"}),
    ),
    BuiltIn(
        name="sqlite",
        schemes=("sqlite",),
        url="holdfast.engines.sqlite.url",
        factory="holdfast.engines.sqlite.engine",
        local=True,
    ),
    BuiltIn(
        name="memory",
        schemes=("memory",),
        url="holdfast.engines.memory.url",
        factory="holdfast.engines.memory.engine",
        local=True,
    ),
)

#: Scheme → the built-in engine that reads it.
SCHEMES: Final[Mapping[str, BuiltIn]] = {scheme: row for row in BUILT_IN for scheme in row.schemes}
NAMES: Final[Mapping[str, BuiltIn]] = {row.name: row for row in BUILT_IN}

#: The target of ``connect()`` when nothing is configured.
DEFAULT_URL: Final = "sqlite:"
#: For the error about a text that is no URL, and about an object that is no client.
EXAMPLE_URLS: Final = "redis://host:6379/0, sqlite:path or memory:"
SHARED_CLIENTS: Final = "a client of redis-py; give a URL such as redis://host:6379/0"
#: Schemes that are planned: refused as not yet available, unless another distribution provides them.
PLANNED: Final = frozenset({"etcd", "postgresql"})

GROUP: Final = "holdfast.engines"
#: Those of the client's own options that the factory of another distribution is given.
_THIRD_PARTY_OPTIONS: Final = ("replicas", "token_ttl", "ttl")

#: Found before. An entry point that is missing is looked up again: its distribution may be installed meanwhile.
_found: Final[dict[str, EntryPoint]] = {}


def load(module: str) -> Any:
    """The module that a row names."""
    return importlib.import_module(module)


def make_engine(target: Target) -> Engine:
    """The engine for a parsed target. Does no I/O."""
    row = NAMES.get(target.engine)
    factory = _third_party_factory(target.engine) if row is None else _built_in_factory(row)
    names = _THIRD_PARTY_OPTIONS if row is None else row.client_options
    return factory(target.target, {**target.engine_options, **{name: getattr(target.options, name) for name in names}})


def _built_in_factory(row: BuiltIn) -> EngineFactory:
    try:
        factory: EngineFactory = load(row.factory).connect
    except ImportError as missing:
        if (missing.name or "").partition(".")[0] not in row.drivers:
            raise
        command = f"pip install '{DISTRIBUTION}[{row.extra}]'"
        raise UsageError(f"the {row.name} engine needs its driver: {command}") from missing
    return factory


def scheme_with_option(name: str) -> str | None:
    """The scheme whose engine has the option ``name`` while its siblings, which share its grammar, do not."""
    rows = [row for row in BUILT_IN if name in load(row.url).option_names(row.name)]
    if len(rows) == 1 and sum(row.url == rows[0].url for row in BUILT_IN) > 1:
        return rows[0].schemes[0]
    return None


def has_third_party(scheme: str) -> bool:
    """Whether an installed distribution provides an engine for ``scheme``; UsageError if several do.

    Built-in schemes, and the names of built-in engines, cannot be provided by another distribution.
    """
    return scheme not in SCHEMES and scheme not in NAMES and _entry_point(scheme) is not None


def third_party_schemes() -> list[str]:
    """The schemes that installed distributions provide."""
    from importlib.metadata import entry_points

    return sorted({entry.name for entry in entry_points(group=GROUP)} - SCHEMES.keys() - NAMES.keys())


def _entry_point(scheme: str) -> EntryPoint | None:
    if scheme in _found:
        return _found[scheme]
    from importlib.metadata import entry_points  # here, not above: it is slow to import, and few programs need it

    entries = list(entry_points(group=GROUP, name=scheme))
    if len(entries) > 1:
        # Which of them comes first depends on the order of sys.path: two hosts could use different engines.
        providers = ", ".join(sorted(map(_provider, entries)))
        raise UsageError(f"several installed engines provide {scheme}://: {providers}; uninstall all but one")
    if entries:
        _found[scheme] = entries[0]
    return _found.get(scheme)


def _third_party_factory(scheme: str) -> EngineFactory:
    entry = _entry_point(scheme)
    if entry is None:
        raise UsageError(f"no installed distribution provides an engine for {scheme}://")
    try:
        factory: EngineFactory = entry.load()
    except Exception as error:  # importing another distribution can fail in any way
        raise UsageError(
            f"the engine for {scheme}:// cannot be loaded from {_provider(entry)}: {type(error).__name__}: {error}"
        ) from error
    if not callable(factory):
        raise UsageError(f"the engine for {scheme}:// is not callable: {_provider(entry)} must name its factory")
    return factory


def _provider(entry: EntryPoint) -> str:
    return f"{entry.dist.name if entry.dist is not None else 'unknown'} ({entry.value})"
