"""Importing holdfast is cheap: no driver, no event loop, and little time."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import holdfast

_ENVIRONMENT = os.environ | {"PYTHONPATH": str(Path(holdfast.__path__[0]).parent)}


def python(code: str, environment: dict[str, str] = _ENVIRONMENT) -> str:
    command = [sys.executable, "-c", code]
    result = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=60)
    return result.stdout


def modules_after(code: str) -> set[str]:
    return set(json.loads(python(f"{code}\nimport json, sys; print(json.dumps(sorted(sys.modules)))")))


def test_import_loads_no_driver_and_no_event_loop() -> None:
    new = modules_after("import holdfast") - modules_after("")
    unwanted = {"asyncio", "redis", "hiredis", "sqlite3", "ssl", "kazoo", "typer", "rich", "pytest"}
    assert {name.partition(".")[0] for name in new} & unwanted == set()


def test_a_sync_client_loads_no_event_loop() -> None:
    code = "import holdfast\nwith holdfast.connect('memory:') as c, c.lock('a'): pass"
    assert "asyncio" not in modules_after(code)


def test_lazy_parts_are_reachable_after_import() -> None:
    code = "import holdfast; print(holdfast.aio.connect.__module__, holdfast.fencing.__name__)"
    assert python(code).split() == ["holdfast.aio", "holdfast.fencing"]


def test_import_adds_less_than_sixty_milliseconds(tmp_path: Path) -> None:
    """As installed: with compiled bytecode. The best of several, since load only adds time."""
    environment = _ENVIRONMENT | {"PYTHONPYCACHEPREFIX": str(tmp_path), "PYTHONDONTWRITEBYTECODE": ""}
    code = "import time; began = time.process_time(); import holdfast; print(time.process_time() - began)"
    costs = [float(python(code, environment)) for _ in range(25)]
    assert min(costs) < 0.060, f"the import takes {min(costs) * 1000:.0f} ms at best"


def test_all_is_sorted_and_every_name_in_it_exists() -> None:
    assert holdfast.__all__ == sorted(holdfast.__all__)
    assert len(set(holdfast.__all__)) == len(holdfast.__all__)
    for name in holdfast.__all__:
        assert getattr(holdfast, name) is not None
