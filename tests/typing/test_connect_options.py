"""The keys of the option TypedDicts are the options that the parsers accept, and those of ``lock`` agree."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pytest

import holdfast
from holdfast import aio, base_client
from holdfast.decorator.options import LockedOptions

FAMILIES = [
    ("memory:", holdfast.MemoryOptions),
    ("sqlite:", holdfast.SqliteOptions),
    ("redis://h", holdfast.RedisOptions),
    ("rediss://h", holdfast.RedisOptions),
    ("unix:///run/redis.sock", holdfast.RedisOptions),
    ("redlock://a,b,c", holdfast.RedisOptions),
    ("redis+sentinel://a/m", holdfast.SentinelOptions),
    ("redis+cluster://a", holdfast.ClusterOptions),
    ("zookeeper://a", holdfast.ZooKeeperOptions),
]
#: A function, which no URL can name: the parser does not list it.
PYTHON_ONLY = {"observer"}
every_family = pytest.mark.parametrize("url, family", FAMILIES, ids=[url for url, _ in FAMILIES])


def keys(options: Any) -> set[str]:
    return set(options.__annotations__)


def connect(url: str, **options: Any) -> None:
    holdfast.connect(url, **options)


@every_family
def test_a_family_has_the_options_that_its_parser_lists(url: str, family: Any) -> None:
    with pytest.raises(holdfast.UsageError) as caught:
        connect(url, qqqqqqqq=1)
    _, separator, listed = str(caught.value).partition("; known: ")
    assert separator
    assert keys(family) == set(listed.split(", ")) | PYTHON_ONLY


@every_family
def test_the_parser_refuses_an_option_of_another_family(url: str, family: Any) -> None:
    for name in keys(holdfast.ConnectOptions) - keys(family) - {"profile"}:
        with pytest.raises(holdfast.UsageError, match=rf"(option '{name}'|{name} is not an option)"):
            connect(url, **{name: "1"})


def test_connect_takes_the_options_of_every_family() -> None:
    assert keys(holdfast.ConnectOptions) == {"profile"}.union(*(keys(family) for _, family in FAMILIES))


def test_no_option_is_required() -> None:
    families: list[Any] = [holdfast.CommonOptions, holdfast.ConnectOptions, *(family for _, family in FAMILIES)]
    for family in families:
        assert family.__required_keys__ == frozenset()


@pytest.mark.parametrize("method", [holdfast.Client.lock, aio.AsyncClient.lock])
def test_keywords_of_lock_are_those_that_a_wrong_keyword_is_compared_with(method: Callable[..., Any]) -> None:
    assert list(inspect.signature(method).parameters) == ["self", "name", *base_client.LOCK_KEYWORDS, "foreign"]


def test_locked_takes_the_keywords_of_lock_and_its_own() -> None:
    assert keys(LockedOptions) == {"key", "prefix", "at_least", *base_client.LOCK_KEYWORDS}
