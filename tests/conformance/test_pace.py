"""The pace of a suite applies to every world, and no case uses a short time without it."""

from __future__ import annotations

import ast
import math
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

import holdfast.testing.conformance
from holdfast.testing.conformance import Fixtures, Source, World, case

_HOME: Final = Path(holdfast.testing.conformance.__path__[0])
_WRITTEN: Final = [_HOME / "scenarios.py", *sorted((_HOME / "cases").glob("*.py"))]

#: Keywords whose values are times. Times shorter than this depend on the speed of engine and machine.
_TIMES: Final = frozenset({"ttl", "timeout", "max_hold"})
_SHORT: Final = 5.0


class TestPace(Fixtures):
    pace = 2.5

    @pytest.fixture
    def url(self) -> str:
        return f"memory:{uuid.uuid4().hex}"

    @case
    async def test_times_are_multiplied_by_the_pace(self, world: World) -> None:
        assert world.paced(0.15) == 0.375
        assert world.soon == 2.5 * World(Source("memory:"), world.api).soon
        lock = world.connect().lock(world.name(), ttl=world.paced(0.15), renew=False)
        lease = world.keep(await world.do(lock.acquire))
        assert lease.ttl == 0.375


@pytest.mark.parametrize("pace", [0.99, 0, -1, math.nan])
def test_pace_below_one_is_refused(pace: float) -> None:
    with pytest.raises(ValueError, match="pace"):
        Source("memory:", pace=pace)


def _times(tree: ast.AST) -> Iterator[ast.expr]:
    """The expressions given as times: by a keyword, in a dict of keywords, or to ``wait``."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            yield from (keyword.value for keyword in node.keywords if keyword.arg in _TIMES)
            if isinstance(node.func, ast.Attribute) and node.func.attr == "wait":
                yield from node.args
        elif isinstance(node, ast.Dict):
            pairs = zip(node.keys, node.values, strict=True)
            yield from (value for key, value in pairs if isinstance(key, ast.Constant) and key.value in _TIMES)


def _is_short(time: ast.expr) -> bool:
    return isinstance(time, ast.Constant) and isinstance(time.value, int | float) and 0 < time.value < _SHORT


@pytest.mark.parametrize("file", _WRITTEN, ids=lambda file: file.name)
def test_cases_have_no_short_time_without_pace(file: Path) -> None:
    found = [f"line {time.lineno}: {ast.unparse(time)}" for time in _times(ast.parse(file.read_text("utf-8")))
             if _is_short(time)]  # fmt: skip
    assert found == [], "short times go through paced()"
