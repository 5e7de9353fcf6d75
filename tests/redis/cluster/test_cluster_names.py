"""All keys of a lock are in one slot; a name for which that is impossible is refused, on a cluster only (R23)."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st
from redis.crc import key_slot

import holdfast
from holdfast.engines.redis import engine as one_server
from holdfast.engines.redis.dialect.keys import keys_of, prefixed, renewed
from holdfast.errors import InvalidName
from tests.redis.cluster.support import engine_for

CLUSTER = engine_for("redis+cluster://h:7000")
SINGLE = one_server.connect("redis://h:6379", {})

#: Mostly the characters of hash tags.
NAMES = st.text(st.sampled_from("{}}{ab:é*"), min_size=1, max_size=12) | st.text(
    st.characters(exclude_categories=["Cs"]), min_size=1, max_size=60
)


def belonging(name: str) -> list[str]:
    """Returns every key and channel ever used for ``name``."""
    keys, owner = keys_of(name), "2d1c:77"
    waiter = keys.waiter("0f0f")
    probes = [f"{prefixed('holdfast_probe', watched)}:aa" for watched in (name, waiter)]
    tombstones = [f"{prefix}:gone:{owner}" for prefix in (keys.acquire[-1], keys.release[-1], keys.join[-1])]
    sets = [*keys.acquire, *keys.release, *keys.raise_, *keys.join, *keys.inspect, *renewed(name)]
    return [*sets, keys.channel, keys.queue, waiter, *probes, *tombstones]


@given(NAMES)
def test_accepted_name_has_all_its_keys_in_one_slot(name: str) -> None:
    try:
        CLUSTER.validate_name(name)
    except InvalidName:
        return
    assert len({key_slot(key.encode()) for key in belonging(name)}) == 1


@given(NAMES)
def test_name_is_refused_only_if_its_keys_would_be_in_different_slots(name: str) -> None:
    with contextlib.suppress(InvalidName):
        CLUSTER.validate_name(name)
        return
    with contextlib.suppress(InvalidName):
        SINGLE.validate_name(name)
        assert len({key_slot(key.encode()) for key in belonging(name)}) > 1


@pytest.mark.parametrize("name", ["a}b{c", "}x", "{", "}", "{}", "{}x", "x{y", "x{}y{z}", "a}{"])
def test_names_with_keys_in_different_slots_are_refused_only_on_a_cluster(name: str) -> None:
    with holdfast.connect("redis+cluster://h:7000") as locks:
        with pytest.raises(InvalidName, match="hash tag") as refused:
            locks.lock(name)
        assert refused.value.name == name
    for url in ("redis://h", "redlock://h1,h2,h3", "memory:"):
        with holdfast.connect(url) as locks:
            assert locks.lock(name).name == name


@pytest.mark.parametrize("name", ["plain", "{a}b", "a{b}c", "{a}{", "a}b{c}d", "{ü}", "*?[x]"])
def test_names_with_keys_in_one_slot_are_accepted(name: str) -> None:
    with holdfast.connect("redis+cluster://h:7000") as locks:
        assert locks.lock(name).name == name


def test_namespace_is_part_of_the_checked_name() -> None:
    with holdfast.connect("redis+cluster://h:7000", namespace="app{") as locks, pytest.raises(InvalidName):
        locks.lock("x")
    with holdfast.connect("redis+cluster://h:7000", namespace="{app}") as locks:
        assert locks.lock("x}y").name == "x}y", "the namespace is the hash tag"
