"""The variables of a monitor: which annotations there may be, what fits them, and what is found in the store."""

from __future__ import annotations

import pickle
import uuid
from collections.abc import Iterator
from typing import Any, ClassVar, Literal, Optional, Union

import pytest

import holdfast
from holdfast._runtime.blocking import run
from holdfast.engines.registers import Guard, RegisterKey


class Everything(holdfast.Monitor):
    number: int = 0
    ratio: float = 0.5
    text: str = ""
    flag: bool = False
    maybe: Optional[int] = None  # noqa: UP045
    either: Union[int, list[str]] = 1  # noqa: UP007
    choice: Literal["on", "off", 3] = "on"
    table: dict[str, list[int]] = {}  # noqa: RUF012
    anything: Any = None
    constant: ClassVar[int] = 7
    _private: int = 3

    @holdfast.synchronized
    def put(self, **values: Any) -> None:
        for name, value in values.items():
            setattr(self, name, value)


@pytest.fixture
def client() -> Iterator[holdfast.Client]:
    with holdfast.connect(f"memory:{uuid.uuid4().hex}") as client:
        yield client


def write(client: holdfast.Client, data: bytes) -> None:
    """As another program would have stored it."""
    client.ping()
    assert client._opened is not None
    registers = client._opened.session.registers
    assert registers is not None
    key, guard = RegisterKey("a", "monitor", durable=True), Guard(1, "another")
    run(registers.load(key, guard, 1.0))
    run(registers.store(key, guard, 0, 1.0, value=data))


@pytest.mark.parametrize(
    "name, value",
    [
        ("number", -5), ("ratio", 2), ("ratio", 1e300), ("text", "é\ud7ff\n"), ("flag", True), ("maybe", 3),
        ("maybe", None), ("either", ["x"]), ("choice", 3), ("table", {"a": [1, 2]}), ("anything", {"a": [None, 1.5]}),
    ],
)  # fmt: skip
def test_values_that_fit_are_stored_as_they_are(client: holdfast.Client, name: str, value: Any) -> None:
    monitor = Everything(client, "a")
    monitor.put(**{name: value})
    assert Everything(client, "a").snapshot()[name] == value


@pytest.mark.parametrize(
    "name, value, path, expected, found",
    [
        ("number", True, "number", "int", "bool"),
        ("number", 1.0, "number", "int", "float"),
        ("ratio", float("inf"), "ratio", "float", "inf"),
        ("text", b"", "text", "str", "bytes"),
        ("maybe", "x", "maybe", "int or None", "str"),
        ("either", [1], "either[0]", "str", "int"),
        ("either", None, "either", "int or list[str]", "NoneType"),
        ("choice", "maybe", "choice", "'on' or 'off' or 3", "'maybe'"),
        ("table", {"a": [1, "2"]}, "table['a'][1]", "int", "str"),
        ("table", {1: []}, "table", "keys of type str", "a key of type int"),
        ("table", [], "table", "dict", "list"),
        ("anything", {"a": (1,)}, "anything['a']", "a JSON value (int, float, str, bool, None, list or dict)", "tuple"),
    ],
)
def test_values_that_do_not_fit_are_refused(
    client: holdfast.Client, name: str, value: Any, path: str, expected: str, found: str
) -> None:
    monitor = Everything(client, "a")
    with pytest.raises(holdfast.InvalidState) as caught:
        monitor.put(**{name: value})
    assert (caught.value.path, caught.value.expected, caught.value.found) == (path, expected, found)
    assert pickle.loads(pickle.dumps(caught.value)).path == path
    client.lock("a").acquire(timeout=5).release()
    assert monitor.snapshot() == Everything(client, "b").snapshot()


def test_what_is_not_annotated_or_private_is_not_shared(client: holdfast.Client) -> None:
    monitor = Everything(client, "a")
    assert (monitor.constant, monitor._private) == (7, 3)
    assert {"constant", "_private"}.isdisjoint(monitor.snapshot())


@pytest.mark.parametrize(
    "data, path",
    [(b"\xff\x00", ""), (b"[1]", ""), (b'{"number": NaN}', ""), (b'{"number": "x"}', "number"), (b'{"old": 1}', "old")],
)
def test_state_that_is_corrupt_or_foreign_is_an_error_and_stays(
    client: holdfast.Client, data: bytes, path: str
) -> None:
    write(client, data)
    monitor = Everything(client, "a")
    for use in (monitor.snapshot, lambda: monitor.put(number=1)):
        with pytest.raises(holdfast.InvalidState) as caught:
            use()
        assert caught.value.path == path
    assert client._opened is not None
    registers = client._opened.session.registers
    assert registers is not None
    assert run(registers.peek(RegisterKey("a", "monitor", durable=True), 1.0)).value == data


def test_a_variable_that_the_stored_state_does_not_have_has_its_initial_value(client: holdfast.Client) -> None:
    write(client, b'{"number": 5}')
    found = Everything(client, "a").snapshot()
    assert (found["number"], found["ratio"]) == (5, 0.5)


def test_wrong_classes_are_refused_when_they_are_defined_or_used(client: holdfast.Client) -> None:
    with pytest.raises(holdfast.UsageError, match="initial value"):

        class NoInitialValue(holdfast.Monitor):
            number: int

    with pytest.raises(holdfast.UsageError, match="to be def"):

        class OfAnotherKind(holdfast.Monitor):
            @holdfast.synchronized
            async def operation(self) -> None: ...

    class NoJSON(holdfast.Monitor):
        items: set[int] = set()  # noqa: RUF012

    with pytest.raises(holdfast.UsageError):
        NoJSON(client, "a")
    with pytest.raises(holdfast.UsageError, match="generator"):

        @holdfast.synchronized
        def generator(self: Any) -> Iterator[int]:
            yield 1


def test_conditions_work_with_fair_locks_and_write_locks(client: holdfast.Client) -> None:
    for lock in (client.lock("fair", fair=True), client.rwlock("rw").write):
        with lock as lease:
            before = lease.token
            assert not client.condition(lock).wait(timeout=0.01)
            assert lease.held
            assert lease.token > before
            client.condition(lock).notify_all()
    rw = client.rwlock("rw")
    with rw.write, rw.read, pytest.raises(holdfast.UsageError, match="read lock"):
        client.condition(rw.write).wait()
