"""The registry's rows: unique names and schemes, and modules that fulfil the protocols without importing a driver."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from holdfast._config.url_parts import ClientDetection, URLGrammar
from holdfast.engines import registry
from holdfast.engines.memory import url as memory_url
from holdfast.engines.redis import client_detection as redis_clients
from holdfast.engines.redis import url as redis_url
from holdfast.engines.sqlite import url as sqlite_url
from holdfast.engines.zookeeper import url as zookeeper_url

# Checked by mypy: a module can fulfil a protocol.
GRAMMARS: list[URLGrammar] = [redis_url, zookeeper_url, sqlite_url, memory_url]
DETECTIONS: list[ClientDetection] = [redis_clients, zookeeper_url]


def test_names_and_schemes_are_unique() -> None:
    assert len(registry.NAMES) == len(registry.BUILT_IN)
    assert len(registry.SCHEMES) == sum(len(row.schemes) for row in registry.BUILT_IN)
    assert not registry.PLANNED & registry.SCHEMES.keys()


@pytest.mark.parametrize("row", registry.BUILT_IN, ids=lambda row: row.name)
def test_row_names_modules_that_fulfil_the_protocols(row: registry.BuiltIn) -> None:
    assert registry.load(row.url) in GRAMMARS
    assert row.client_detection is None or registry.load(row.client_detection) in DETECTIONS
    assert callable(registry.load(row.factory).connect)
    assert bool(row.extra) == bool(row.drivers)
    assert bool(row.client_detection) == bool(row.client_packages)


def test_grammars_and_client_detections_import_no_driver() -> None:
    modules = {row.url for row in registry.BUILT_IN} | {row.client_detection for row in registry.BUILT_IN} - {None}
    code = f"import json, sys, {', '.join(sorted(filter(None, modules)))}; print(json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    drivers = {driver for row in registry.BUILT_IN for driver in row.drivers} | {"sqlite3", "asyncio"}
    assert not drivers & {name.partition(".")[0] for name in json.loads(done.stdout)}
