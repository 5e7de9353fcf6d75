"""The contract of registers, on the memory engine."""

from __future__ import annotations

import uuid

import pytest

from tests.support.register_contract import APIS, CASES, Case, check, engine_at, name_of


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("case", CASES, ids=name_of)
def test_contract(case: Case, api: str) -> None:
    check(case, engine_at(f"memory:{uuid.uuid4().hex}"), api)
