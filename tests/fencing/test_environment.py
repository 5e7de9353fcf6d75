"""``fencing.from_env()``: the lease of the ``holdfast run`` that started this program."""

from __future__ import annotations

import dataclasses

import pytest

from holdfast.errors import StaleToken, UsageError
from holdfast.fencing import InheritedLease, MemoryFence, from_env

GIVEN = {"HOLDFAST_NAME": "nightly", "HOLDFAST_TOKEN": "1790000000000001", "HOLDFAST_OWNER": "uuid:42"}


def test_from_env_reads_name_token_and_owner(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in GIVEN.items():
        monkeypatch.setenv(name, value)
    lease = from_env()
    assert lease == InheritedLease("nightly", 1790000000000001, "uuid:42")
    with pytest.raises(dataclasses.FrozenInstanceError):
        lease.token = 5  # type: ignore[misc]


def test_every_fence_accepts_it_as_a_lease() -> None:
    fence, lease = MemoryFence(), from_env(GIVEN)
    with fence.guard("report", lease):
        pass
    with pytest.raises(StaleToken):
        fence.check("report", lease.token, "another owner")


def test_lease_of_a_shared_run_is_checked_as_a_read_and_not_stored() -> None:
    fence, reading = MemoryFence(), from_env({**GIVEN, "HOLDFAST_MODE": "read"})
    fence.check("report", reading)
    fence.check("report", reading.token, "another owner")
    fence.check("report", reading.token + 1, "a later writer")
    with pytest.raises(StaleToken):
        fence.check("report", reading)


def test_lease_of_a_run_with_a_semaphore_is_refused() -> None:
    with pytest.raises(UsageError, match="semaphore"):
        MemoryFence().check("report", from_env({**GIVEN, "HOLDFAST_MODE": "permits"}))


@pytest.mark.parametrize("name", GIVEN)
@pytest.mark.parametrize("value", [None, ""])
def test_absent_or_empty_variable_is_refused_with_a_remedy(name: str, value: str | None) -> None:
    environment = {**GIVEN, name: value} if value is not None else {k: v for k, v in GIVEN.items() if k != name}
    with pytest.raises(UsageError, match=rf"{name} is (not set|empty).*holdfast run NAME -- CMD"):
        from_env(environment)


@pytest.mark.parametrize(
    "name, value",
    [
        *(("HOLDFAST_TOKEN", text) for text in ("x", "-1", "+1", " 5", "5 ", "05", "1_0", "5.0", "٥", str(2**63))),
        ("HOLDFAST_NAME", "x" * 513),
        ("HOLDFAST_NAME", "\udc80"),
        ("HOLDFAST_OWNER", "x" * 513),
        ("HOLDFAST_MODE", "shared"),
    ],
)
def test_malformed_variable_is_refused(name: str, value: str) -> None:
    with pytest.raises(UsageError, match=name):
        from_env({**GIVEN, name: value})
