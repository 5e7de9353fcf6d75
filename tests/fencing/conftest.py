"""Both local fences, so that tests of their common behaviour run on each."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.fencing import Fence, FileFence, MemoryFence


@pytest.fixture(params=["memory", "file"])
def fence(request: pytest.FixtureRequest, tmp_path: Path) -> Fence:
    return MemoryFence() if request.param == "memory" else FileFence(tmp_path / "fence")
