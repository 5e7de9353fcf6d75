"""The contract of registers, on the SQLite engine."""

from __future__ import annotations

import pytest

from holdfast.engines.sqlite.engine import SqliteEngine
from tests.support.register_contract import APIS, CASES, Case, check, name_of


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("case", CASES, ids=name_of)
def test_contract(case: Case, api: str, path: str) -> None:
    check(case, SqliteEngine(path), api)
