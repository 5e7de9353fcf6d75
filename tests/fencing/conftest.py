"""Both fences, so that a test of what they promise in common runs on each."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.fencing import Fence, FileFence, MemoryFence


@pytest.fixture(params=["memory", "file"])
def fence(request: pytest.FixtureRequest, tmp_path: Path) -> Fence:
    return MemoryFence() if request.param == "memory" else FileFence(tmp_path / "fence")
