"""A ladder with its servers, shared by the tests of a module."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from holdfast.cli.ladder.runner import Ladder


@pytest.fixture(scope="module")
def ladder() -> Iterator[Ladder]:
    with Ladder() as opened:
        yield opened
