"""Decorated generators: the lock is held from the first step to the end, in whatever thread or context that comes."""

from __future__ import annotations

import contextlib
import contextvars
import gc
import threading
from collections.abc import Callable, Generator, Iterator
from typing import Any

import pytest

import holdfast
from tests.support.waiting import eventually


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
        heard: list[Any] = []
        try:
            while (said := (yield (name(), tuple(heard)))) != "stop":
                heard.append(said)
        except KeyError as error:
            yield f"caught {error}"
        finally:
            heard.append(name())
        return f"heard {heard}"

    return talk


def test_held_from_the_first_step_to_the_end(client: holdfast.Client, other: holdfast.Client, talk: Any) -> None:
    generator = talk("a")
    assert list(other.locks()) == []
    next(generator)
    assert [state.name for state in other.locks()] == ["a"]
    with pytest.raises(StopIteration) as end:
        generator.send("stop")
    assert end.value.value == "heard ['a']"
    assert list(other.locks()) == []


def test_send_throw_and_return_reach_the_body(other: holdfast.Client, talk: Any) -> None:
    generator = talk("a")
    assert next(generator) == ("a", ())
    assert generator.send(1) == ("a", (1,))
    assert generator.send(2) == ("a", (1, 2))
    assert generator.throw(KeyError("x")) == "caught 'x'"
    with pytest.raises(StopIteration, match=r"heard \[1, 2, 'a'\]"):
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


def test_closed_in_another_thread_or_context(other: holdfast.Client, talk: Any) -> None:
    for elsewhere in (in_a_thread, contextvars.Context().run, contextvars.copy_context().run):
        generator = talk("a")
        next(generator)
        elsewhere(generator.close)
        assert list(other.locks()) == []
        assert holdfast.current_lease() is None


def test_each_step_may_run_in_another_thread_and_sees_its_lease(talk: Any) -> None:
    """As Starlette does with the generator of a StreamingResponse."""
    generator = talk("a")
    for _ in range(3):
        assert in_a_thread(lambda: next(generator))[0] == "a"
        assert holdfast.current_lease() is None
    in_a_thread(generator.close)


def test_the_lease_is_current_in_the_body_only(client: holdfast.Client, talk: Any) -> None:
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


def test_a_lease_lost_between_two_steps_is_raised_at_the_yield(client: holdfast.Client, other: holdfast.Client) -> None:
    steps = []

    @client.locked("a", ttl=0.3)
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
    eventually(lambda: not client._opened.live if client._opened else False)  # the watchdog has seen it
    with pytest.raises(holdfast.LockLost):
        next(iterator)
    assert steps == ["broken"]


def test_a_body_that_ends_after_a_loss_raises_it(client: holdfast.Client, other: holdfast.Client) -> None:
    @client.locked("a", ttl=0.3)
    def generator() -> Iterator[int]:
        yield 1
        other.break_("a")
        lease = holdfast.current_lease()
        assert isinstance(lease, holdfast.Lease)
        assert lease.lost.wait(5)

    with pytest.raises(holdfast.LockLost):
        list(generator())


def test_as_a_context_manager(client: holdfast.Client, other: holdfast.Client) -> None:
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


def test_a_busy_lock_skips_a_generator_which_yields_nothing(client: holdfast.Client, other: holdfast.Client) -> None:
    @client.locked("a", on_busy="skip", default="d")
    def generator() -> Iterator[int]:
        yield 1

    with other.lock("a"):
        assert list(generator()) == []
        with pytest.raises(StopIteration, match="d"):
            next(generator())
    assert list(generator()) == [1]
    assert generator.skipped() == 2
