"""The keys of the option TypedDicts are the options that the parsers accept, and those of ``lock`` agree."""

from __future__ import annotations

import inspect

import pytest

import holdfast
from holdfast import aio, client
from holdfast._core import engine_options, parameters
from holdfast.decorator.options import LockedOptions
from holdfast.options import parse_target

OWN = parameters.OWN | parameters.PYTHON_ONLY
FAMILIES = [
    ("memory", "memory:", holdfast.MemoryOptions),
    ("sqlite", "sqlite:", holdfast.SqliteOptions),
    ("redis", "redis://h", holdfast.RedisOptions),
    ("redlock", "redlock://a,b,c", holdfast.RedisOptions),
    ("sentinel", "redis+sentinel://a/m", holdfast.SentinelOptions),
    ("cluster", "redis+cluster://a", holdfast.ClusterOptions),
    ("zookeeper", "zookeeper://a", holdfast.ZooKeeperOptions),
]


def keys(options: type) -> set[str]:
    return set(options.__annotations__)


@pytest.mark.parametrize("engine, url, family", FAMILIES, ids=[engine for engine, _, _ in FAMILIES])
def test_a_family_has_the_options_that_its_parser_knows(engine: str, url: str, family: type) -> None:
    refused = parameters.ZOOKEEPER_REFUSED.keys() if engine == "zookeeper" else set()
    assert keys(family) == OWN | (engine_options.known(engine) - refused)


@pytest.mark.parametrize("engine, url, family", FAMILIES, ids=[engine for engine, _, _ in FAMILIES])
def test_an_option_outside_of_its_family_is_unknown_to_the_parser(engine: str, url: str, family: type) -> None:
    for name in keys(holdfast.ConnectOptions) - keys(family) - {"profile"}:
        with pytest.raises(holdfast.UsageError, match=rf"(option '{name}'|{name} is not an option)"):
            parse_target(url, {name: "1"})


def test_connect_takes_the_options_of_every_family() -> None:
    assert keys(holdfast.ConnectOptions) == {"profile"}.union(*(keys(family) for _, _, family in FAMILIES))


def test_no_option_is_required() -> None:
    for family in (holdfast.ConnectOptions, *(family for _, _, family in FAMILIES)):
        assert family.__required_keys__ == frozenset()


@pytest.mark.parametrize("method", [holdfast.Client.lock, aio.AsyncClient.lock])
def test_lock_names_its_keywords_once(method: object) -> None:
    parameters_of_lock = list(inspect.signature(method).parameters)  # type: ignore[arg-type]
    assert parameters_of_lock == ["self", "name", *client.LOCK_KEYWORDS, "foreign"]
    assert keys(LockedOptions) - {"key", "prefix", "at_least"} == set(client.LOCK_KEYWORDS)
