"""Names: every valid name works in all operations; others are refused before a request is sent."""

from __future__ import annotations

import functools
from typing import Any, ClassVar, Final

import pytest

import holdfast
from holdfast.testing.conformance.world import World
from holdfast.testing.conformance.writing import case

_GOOD: Final = [
    "a", "with space", " ", "a:b:c", "/etc/passwd", "../..", "{}", "{a}b", "new\nline", "tab\t", "cr\r\n", "ü",
    "Ελλάδα", "日本語", "🔒", "e\u0301", "\u202eabc", "'; DROP TABLE locks; --", '"', "\\", "%s%d", "*", "?", "[a]",
]  # fmt: skip
#: An engine may refuse these names, but must then raise InvalidName.
_DOUBTFUL: Final = ["nul\0", "}x", "a}b{c", "{", "}", "\x7f", "\ufffe"]
_BAD: Final[list[Any]] = ["", "a" * 513, "ü" * 257, "\ud800", None, 7, b"bytes", ("a",)]


async def use(world: World, name: str) -> None:
    """Hold ``name``, and find it with all operations."""
    client, other = world.connect(), world.connect()
    lease = await world.do(client.lock(name).acquire)
    assert lease.name == name
    assert await world.do(other.lock(name).try_acquire) is None
    state = await world.inspect(other, name)
    assert (state.name, [holder.token for holder in state.holders]) == (name, [lease.token])
    assert [state.name for state in await world.list_locks(other)] == [name]
    await world.do(lease.release)
    assert await world.is_free(name)


class NamingCases:
    #: Names of ``test_any_text_is_a_name`` that this engine refuses by design. All others must work.
    refused_names: ClassVar[frozenset[str]] = frozenset()

    @case
    async def test_any_text_is_a_name(self, world: World) -> None:
        assert self.refused_names <= set(_GOOD)
        for name in _GOOD:
            if name in self.refused_names:
                with pytest.raises(holdfast.InvalidName):
                    world.connect().lock(world.name(name))
            else:
                await use(world, world.name(name))

    @case
    async def test_a_doubtful_name_works_or_is_refused(self, world: World) -> None:
        client = world.connect()
        for name in _DOUBTFUL:
            try:
                client.lock(world.name(name))
            except holdfast.InvalidName:
                continue
            await use(world, world.name(name))

    @pytest.mark.parametrize("letter", ["a", "ü", "🔒"])
    @case
    async def test_a_name_has_up_to_512_bytes(self, world: World, letter: str) -> None:
        size = len(letter.encode())
        room = 512 - len(world.name("").encode())
        name = world.name(letter * (room // size) + "." * (room % size))
        assert len(name.encode()) == 512
        await use(world, name)
        with pytest.raises(holdfast.InvalidName):
            world.connect().lock(name + ".")

    @case
    async def test_names_that_look_alike_are_different_locks(self, world: World) -> None:
        client = world.connect()
        names = ["a", "A", "a ", " a", "é", "e\u0301", "а", "a\n", "1", "01"]
        leases = [await world.do(client.lock(world.name(name)).try_acquire) for name in names]
        others = [await world.actor().do(client.lock(world.name(name)).try_acquire) for name in names]
        assert None not in leases
        assert others == [None] * len(names)
        assert {state.name for state in await world.list_locks(client)} == {world.name(name) for name in names}
        for lease in leases:
            await world.do(lease.release)

    @pytest.mark.parametrize("bad", _BAD, ids=lambda bad: repr(bad)[:10])
    @case
    async def test_invalid_name_is_refused(self, world: World, bad: Any) -> None:
        client = world.connect()
        for attempt in (client.lock, client.inspect, client.break_):
            with pytest.raises(holdfast.InvalidName) as caught:
                await world.do(functools.partial(attempt, bad))
            assert isinstance(caught.value, ValueError)
            assert isinstance(caught.value, holdfast.LockError)
