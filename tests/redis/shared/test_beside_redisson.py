"""Mixed with Redisson's own steps on the same keys: readers exclude writers, permits never exceed the size."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial

import pytest

from holdfast._runtime.blocking import run
from holdfast.engines.base import READ, WRITE, Found, Granted, Mode, permits
from holdfast.engines.redis.attempt import RedisAttempt
from tests.redis.shared.redisson import Java
from tests.redis.support import TIMEOUT, Other, make_attempt
from tests.servers.redis import RedisServer
from tests.support.soak import soak

STEPS = 400


class Ours:
    """Claims of ours, as Java's methods would make them."""

    def __init__(self, other: Other) -> None:
        self._session = other.session

    def take(self, mode: Mode) -> Callable[[], object] | None:
        """What to call to give it back; None: not granted."""
        attempt = make_attempt("job", mode=mode)
        granted = isinstance(run(self._session.acquire(attempt, TIMEOUT)), Granted)
        return partial(self._give_back, attempt) if granted else None

    def _give_back(self, attempt: RedisAttempt) -> None:
        assert run(self._session.release(attempt, TIMEOUT)) is Found.OURS


def _enter(java: Java, writes: bool) -> Callable[[], object] | None:
    if not (java.write() if writes else java.read()):
        return None
    return partial(_leave, java, writes)


def _leave(java: Java, writes: bool) -> None:
    assert (java.write_unlock() if writes else java.read_unlock()) in (0, 1)


def _permit(java: Java) -> Callable[[], object] | None:
    permit = java.take_permit()
    return None if permit is None else partial(_return, java, permit)


def _return(java: Java, permit: bytes) -> None:
    assert java.return_permit(permit)


@pytest.mark.parametrize("steps", [STEPS, soak(20 * STEPS, reason="rare orders of grants and releases")])
def test_mixed_grants_of_a_read_write_lock_are_those_of_the_model(steps: int, redis_server: RedisServer) -> None:
    """Every grant and refusal is predicted: no claim waits here, so one is granted iff nothing conflicts."""
    choose, grants = random.Random(1), 0
    javas = [Java(redis_server, "job") for _ in range(3)]
    held: list[tuple[bool, Callable[[], object]]] = []  # whether it writes, and how to give it back
    with Other(redis_server.url) as other:
        ours = Ours(other)
        for number in range(steps):
            if held and choose.random() < 0.5:
                held.pop(choose.randrange(len(held)))[1]()
                continue
            writes, java = choose.random() < 0.4, choose.choice([None, *javas])
            free = not held or (not writes and not any(each for each, _ in held))
            if java is None:
                release = ours.take(WRITE if writes else READ)
            else:
                free = free or _may_reenter(java, redis_server)
                release = _enter(java, writes)
            assert (release is not None) == free, f"step {number}: {'write' if writes else 'read'}, held: {held}"
            if release is not None:
                grants += 1
                held.append((writes, release))
        for _, release in held:
            release()
    assert grants > STEPS / 10
    left = {key for key in redis_server.client().scan_iter() if not key.startswith(b"redisson_lock_token:")}
    assert left == set()


def _may_reenter(java: Java, server: RedisServer) -> bool:
    """Whether this thread of Java writes already: then it may read inside, or write once more."""
    return bool(server.client().hexists("job", f"{java.owner}:write"))


@pytest.mark.parametrize("steps", [STEPS, soak(20 * STEPS, reason="rare orders of grants and releases")])
def test_mixed_permits_never_exceed_the_size(steps: int, redis_server: RedisServer) -> None:
    choose, size, grants = random.Random(1), 5, 0
    javas = [Java(redis_server, "job", fast) for fast in (0, 900)]
    held: list[tuple[int, Callable[[], object]]] = []
    with Other(redis_server.url) as other:
        ours = Ours(other)
        run(other.session.resize("job", size, TIMEOUT))
        for _ in range(steps):
            if held and choose.random() < 0.5:
                held.pop(choose.randrange(len(held)))[1]()
                continue
            out = sum(count for count, _ in held)
            by_java = choose.random() < 0.5
            count = 1 if by_java else choose.choice([1, 1, 2, 3])
            release = _permit(choose.choice(javas)) if by_java else ours.take(permits(count, size))
            assert (release is not None) == (out + count <= size)
            if release is not None:
                grants += 1
                held.append((count, release))
            state = run(other.session.inspect("job", TIMEOUT))
            assert (state.size, state.free) == (size, size - sum(each for each, _ in held))
        for _, release in held:
            release()
        assert run(other.session.inspect("job", TIMEOUT)).free == size
    assert grants > STEPS / 10


def test_clock_of_java_that_is_fast_takes_no_live_permit(redis_server: RedisServer) -> None:
    java = Java(redis_server, "job", fast=900)
    with Other(redis_server.url) as other:
        attempt = make_attempt("job", ttl=0.1, mode=permits(1, 1))
        assert isinstance(run(other.session.acquire(attempt, TIMEOUT)), Granted)
        assert java.take_permit() is None
        assert run(other.session.release(attempt, TIMEOUT)) is Found.OURS
        assert java.take_permit() is not None


def test_permit_of_java_that_has_expired_is_taken_back(redis_server: RedisServer) -> None:
    java = Java(redis_server, "job")
    with Other(redis_server.url) as other:
        run(other.session.resize("job", 1, TIMEOUT))
        assert java.take_permit(lease=-1) is not None
        state = run(other.session.inspect("job", TIMEOUT))
        assert (state.holders, state.size, state.free) == ((), 1, 1)
        assert isinstance(run(other.session.acquire(make_attempt("job", mode=permits(1, 1)), TIMEOUT)), Granted)


def test_readers_of_java_that_died_do_not_keep_a_writer_out(redis_server: RedisServer) -> None:
    """The last live reader finds that nothing is left of them but their fields."""
    dead = Java(redis_server, "job")
    with Other(redis_server.url) as other:
        reader, writer = make_attempt("job", mode=READ), make_attempt("job", mode=WRITE)
        assert dead.read()
        assert isinstance(run(other.session.acquire(reader, TIMEOUT)), Granted)
        redis_server.client().delete(f"{{job}}:{dead.owner}:rwlock_timeout:1")
        assert run(other.session.release(reader, TIMEOUT)) is Found.OURS
        assert isinstance(run(other.session.acquire(writer, TIMEOUT)), Granted)


def test_our_reader_survives_the_releases_of_java(redis_server: RedisServer) -> None:
    java = Java(redis_server, "job")
    with Other(redis_server.url) as other:
        reader = make_attempt("job", mode=READ)
        assert java.read()
        assert isinstance(run(other.session.acquire(reader, TIMEOUT)), Granted)
        assert java.read_unlock() == 0
        assert run(other.session.renew(reader, 30.0, TIMEOUT)) is Found.OURS
        assert not java.write()
        assert run(other.session.release(reader, TIMEOUT)) is Found.OURS
        assert java.write()
