"""The key of a guard: unique for each resource, in the slot of the resource."""

from __future__ import annotations

import string

from hypothesis import example, given
from hypothesis import strategies as st
from redis.crc import key_slot

from holdfast.engines.redis.dialect import keys as lock_keys
from holdfast.fencing.redis.keys import PREFIX, guard_key

_names = st.text("{}:ab", min_size=1, max_size=12)


@given(_names, _names)
@example("x", "{x}")
@example("{x}:x", "x")
def test_two_resources_never_share_a_guard(one: str, other: str) -> None:
    assert (guard_key(one) == guard_key(other)) == (one == other)


@given(_names | st.text(string.printable, min_size=1))
def test_guard_is_in_the_slot_of_the_resource_where_a_hash_tag_allows_it(resource: str) -> None:
    if "}" not in lock_keys.hash_tag(resource):
        assert key_slot(guard_key(resource).encode()) == key_slot(resource.encode())


def test_lock_names_cannot_collide_with_guard_keys() -> None:
    assert lock_keys.is_side_key(guard_key("anything"))
    assert lock_keys.is_side_key(PREFIX)
