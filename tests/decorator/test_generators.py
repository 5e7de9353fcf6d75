"""Decorated generators hold the lock from the first step to the end, in any thread or context."""

from __future__ import annotations

import contextlib
import contextvars
import gc
import threading
from collections.abc import Callable, Generator, Iterator
from typing import Any

import pytest

import holdfast
from tests.support.waiting import LASTING, eventually


def name() -> str | None:
    lease = holdfast.current_lease()
    return lease.name if lease is not None else None


def in_a_thread(call: Callable[[], Any]) -> Any:
    results: list[Any] = []
    thread = threading.Thread(target=lambda: results.append(call()))
    thread.start()
    thread.join(10)
    return results.pop()


@pytest.fixture
def talk(client: holdfast.Client) -> Callable[..., Generator[Any, Any, str]]:
    @client.locked("{key}")
    def talk(key: str) -> Generator[Any, Any, str]:
        received: list[Any] = []
        try:
            while (sent := (yield (name(), tuple(received)))) != "stop":
                received.append(sent)
        except KeyError as error:
            yield f"caught {error}"
        finally:
            received.append(name())
        return f"received {received}"

    return talk


def test_generator_holds_the_lock_from_first_step_to_end(
    client: holdfast.Client, other: holdfast.Client, talk: Any
) -> None:
    generator = talk("a")
    assert list(other.locks()) == []
    next(generator)
    assert [state.name for state in other.locks()] == ["a"]
    with pytest.raises(StopIteration) as end:
        generator.send("stop")
    assert end.value.value == "received ['a']"
    assert list(other.locks()) == []


def test_send_throw_and_return_reach_the_body(other: holdfast.Client, talk: Any) -> None:
    generator = talk("a")
    assert next(generator) == ("a", ())
    assert generator.send(1) == ("a", (1,))
    assert generator.send(2) == ("a", (1, 2))
    assert generator.throw(KeyError("x")) == "caught 'x'"
    with pytest.raises(StopIteration, match=r"received \[1, 2, 'a'\]"):
        next(generator)
    other_one = talk("a")
    next(other_one)
    with pytest.raises(ZeroDivisionError):
        other_one.throw(ZeroDivisionError)
    assert list(other.locks()) == []


def test_close_runs_the_clean_up_inside_the_lock(client: holdfast.Client, other: holdfast.Client) -> None:
    seen = []

    @client.locked("a")
    def generator() -> Iterator[int]:
        try:
            yield 1
        finally:
            seen.append((name(), [state.name for state in other.locks()]))

    for way in ("close", "garbage", "break"):
        steps: Any = generator()
        if way == "break":
            for _ in steps:
                break
        else:
            next(steps)
        if way == "close":
            steps.close()
        del steps
        gc.collect()
    assert seen == [("a", ["a"])] * 3
    assert list(other.locks()) == []


def test_close_in_another_thread_or_context_releases_the_lock(other: holdfast.Client, talk: Any) -> None:
    for elsewhere in (in_a_thread, contextvars.Context().run, contextvars.copy_context().run):
        generator = talk("a")
        next(generator)
        elsewhere(generator.close)
        assert list(other.locks()) == []
        assert holdfast.current_lease() is None


def test_steps_in_different_threads_see_the_lease(talk: Any) -> None:
    """Starlette does this with the generator of a StreamingResponse."""
    generator = talk("a")
    for _ in range(3):
        assert in_a_thread(lambda: next(generator))[0] == "a"
        assert holdfast.current_lease() is None
    in_a_thread(generator.close)


def test_lease_is_current_only_in_the_body(client: holdfast.Client, talk: Any) -> None:
    with client.lock("outer"):
        one, two = talk("one"), talk("two")
        for _ in range(2):
            assert next(one)[0] == "one"
            assert name() == "outer"
            assert next(two)[0] == "two"
            assert name() == "outer"
        one.close()
        assert next(two)[0] == "two"
        two.close()
        assert name() == "outer"
    assert name() is None


def test_loss_between_two_steps_is_raised_at_the_yield(client: holdfast.Client, other: holdfast.Client) -> None:
    steps = []

    @client.locked("a", ttl=LASTING)
    def generator() -> Iterator[int]:
        try:
            yield 1
            steps.append("went on without the lock")
        except holdfast.LockLost as lost:
            steps.append(lost.reason)
            raise

    iterator = generator()
    next(iterator)
    other.break_("a")
    eventually(lambda: not client._opened.grants() if client._opened else False)  # the watchdog has noticed the loss
    with pytest.raises(holdfast.LockLost):
        next(iterator)
    assert steps == ["broken"]


def test_body_that_ends_after_a_loss_raises_the_loss(client: holdfast.Client, other: holdfast.Client) -> None:
    @client.locked("a", ttl=0.3)
    def generator() -> Iterator[int]:
        yield 1
        other.break_("a")
        lease = holdfast.current_lease()
        assert isinstance(lease, holdfast.Lease)
        assert lease.lost.wait(5)

    with pytest.raises(holdfast.LockLost):
        list(generator())


def test_decorated_generator_works_as_a_context_manager(client: holdfast.Client, other: holdfast.Client) -> None:
    @contextlib.contextmanager
    @client.locked("{n}")
    def held(n: int) -> Iterator[holdfast.Lease]:
        lease = holdfast.current_lease()
        assert isinstance(lease, holdfast.Lease)
        yield lease

    with held(5) as lease:
        assert lease.held
        assert [state.name for state in other.locks()] == ["5"]
    assert list(other.locks()) == []
    with pytest.raises(ZeroDivisionError), held(5):
        raise ZeroDivisionError
    assert list(other.locks()) == []


def test_skipped_generator_yields_nothing(client: holdfast.Client, other: holdfast.Client) -> None:
    @client.locked("a", on_busy="skip", default="d")
    def generator() -> Iterator[int]:
        yield 1

    with other.lock("a"):
        assert list(generator()) == []
        with pytest.raises(StopIteration, match="d"):
            next(generator())
    assert list(generator()) == [1]
    assert generator.skipped() == 2
