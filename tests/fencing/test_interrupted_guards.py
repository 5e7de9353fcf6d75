"""A signal handler may raise at any instruction of a guard: the fence is free afterwards, and no older token passes."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from functools import partial
from pathlib import Path

import pytest

from holdfast.errors import StaleToken
from holdfast.fencing import Fence, FileFence, Guard, MemoryFence
from holdfast.fencing.file_gate import FileGate
from holdfast.fencing.rule import Bearer
from tests.fencing.processes import Program, programs
from tests.support.leaks import descriptors
from tests.support.signal_injector import SOURCE, HandlerInjector, InjectedInterrupt, SignalInjector

PLACES = (SOURCE, __file__)
OWNER = "us"

#: Enters on a line "resource token" and reports the result.
ENTRANT = """
while line := read_line():
    resource, token = line.split()
    try:
        with fence.guard(resource, int(token), timeout=10): report("in")
    except LockError as error: report(error)
"""


@pytest.fixture(params=["memory", "file"])
def fence(request: pytest.FixtureRequest, tmp_path: Path) -> Fence:
    return MemoryFence() if request.param == "memory" else FileFence(tmp_path / "fence", durable=False)


@pytest.fixture
def other_thread() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(1) as executor:
        yield executor


@pytest.fixture
def other_process(fence: Fence, tmp_path: Path) -> Iterator[Program | None]:
    if isinstance(fence, FileFence):
        with programs(1, ENTRANT, tmp_path / "fence") as (program,):
            yield program
    else:
        yield None


class Resource:
    """The resource behind the fence: records concurrent writes, and whether the interrupted write took place."""

    def __init__(self) -> None:
        self.inside = 0
        self.written = False

    def write(self) -> None:
        self.inside += 1
        try:
            assert self.inside == 1, "two writers inside one guard"
            self.written = True
        finally:
            self.inside -= 1


def enter(fence: Fence, token: int, write: Callable[[], None]) -> None:
    with fence.guard("r", token, OWNER, timeout=10):
        write()


async def enter_async(fence: Fence, token: int, write: Callable[[], None]) -> None:
    async with fence.guard("r", token, OWNER, timeout=10):
        write()


def run_on(loop: asyncio.AbstractEventLoop, fence: Fence, token: int, write: Callable[[], None]) -> None:
    loop.run_until_complete(enter_async(fence, token, write))


def interrupt(call: Callable[[], None], number: int, then: int | None) -> SignalInjector:
    """Runs ``call`` with a signal at place ``number``, and another one ``then`` lines later."""
    injector = SignalInjector(number, then, PLACES)
    try:
        with injector:
            call()
    except InjectedInterrupt:
        pass  # drops the traceback and the guard with it
    return injector


def is_free_and_raised(fence: Fence, token: int, thread: ThreadPoolExecutor, process: Program | None) -> None:
    """A thread and a process can both enter, and afterwards the interrupted token is stale."""
    thread.submit(enter, fence, token + 1, lambda: None).result(15)
    if process is not None:
        process.send(f"r {token + 2}")
        assert process.answer() == "in"
    with pytest.raises(StaleToken):
        fence.check("r", token, OWNER)


def descriptors_in_use() -> set[int]:
    gc.collect(0)
    return descriptors()


@pytest.mark.parametrize("then", [None, 1, 4])
def test_signal_at_any_instruction_of_a_guard_leaves_the_fence_free(
    fence: Fence, other_thread: ThreadPoolExecutor, other_process: Program | None, then: int | None
) -> None:
    number = token = 0
    fence.check("r", 0)
    before = descriptors_in_use()
    while True:
        token += 10
        resource = Resource()
        # With the same token, so that their order does not matter.
        waiting = other_thread.submit(enter, fence, token, lambda: None)
        injector = interrupt(partial(enter, fence, token, resource.write), number, then)
        waiting.result(15)
        if resource.written:
            with pytest.raises(StaleToken):
                fence.check("r", token - 1, OWNER)
        is_free_and_raised(fence, token, other_thread, other_process)
        assert descriptors_in_use() == before, f"left open by a signal at {injector.interrupted_at}"
        if not injector.interrupted_at:
            break
        number += 1
    assert number > 20
    assert resource.written


def test_interrupted_guard_can_be_raised_again(fence: Fence) -> None:
    number = 0
    while True:
        guard = fence.guard("r", 1, OWNER, timeout=10)
        injector = interrupt(guard.__enter__, number, None)
        if not injector.interrupted_at:
            guard.__exit__(None, None, None)
            break
        with guard:
            pass
        number += 1
    assert number > 10


def test_guard_interrupted_before_its_exit_is_released_when_dropped(
    fence: Fence, monkeypatch: pytest.MonkeyPatch, other_thread: ThreadPoolExecutor
) -> None:
    def interrupted(*_: object) -> None:
        raise InjectedInterrupt

    monkeypatch.setattr(Guard, "__exit__", interrupted)
    with pytest.raises(InjectedInterrupt):
        enter(fence, 1, lambda: None)
    monkeypatch.undo()
    other_thread.submit(enter, fence, 2, lambda: None).result(15)


@pytest.mark.filterwarnings("ignore:coroutine:RuntimeWarning")  # interrupted before its first step
def test_signal_at_any_instruction_of_an_async_guard_leaves_the_fence_free(
    fence: Fence, other_thread: ThreadPoolExecutor, other_process: Program | None
) -> None:
    number = token = 0
    fence.check("r", 0)
    while True:
        token += 10
        resource = Resource()
        loop = asyncio.new_event_loop()
        loop.set_exception_handler(lambda loop, context: None)  # "Task exception was never retrieved": it was raised
        waiting = other_thread.submit(enter, fence, token, lambda: None)
        injector = interrupt(partial(run_on, loop, fence, token, resource.write), number, None)
        loop.close()
        gc.collect(0)  # a task and the exception that it ended with refer to each other
        waiting.result(15)
        is_free_and_raised(fence, token, other_thread, other_process)
        if not injector.interrupted_at:
            break
        number += 1
    assert number > 20
    assert resource.written


def test_interrupted_event_loop_keeps_the_lock_while_a_thread_stores_the_token(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, other_thread: ThreadPoolExecutor
) -> None:
    """Otherwise that thread would overwrite the newer token of the next holder and readmit an older holder."""
    fence = FileFence(tmp_path / "fence", durable=False)
    storing, go_on, store = threading.Event(), threading.Event(), FileGate.store

    def slow(self: FileGate, seen: Bearer) -> None:
        if seen.token == 1:
            storing.set()
            assert go_on.wait(15)
        store(self, seen)

    monkeypatch.setattr(FileGate, "store", slow)
    loop = asyncio.new_event_loop()
    task = loop.create_task(enter_async(fence, 1, lambda: None))
    loop.set_exception_handler(lambda loop, context: None)
    while not storing.is_set():
        loop.run_until_complete(asyncio.sleep(0.001))
    newer = other_thread.submit(enter, fence, 2, lambda: None)
    closing = threading.Thread(target=task.get_coro().close)  # like its garbage collection
    closing.start()
    assert not wait([newer], 0.3).done, "unlocked in the middle of a write"
    go_on.set()
    closing.join(15)
    newer.result(15)
    loop.close()
    with pytest.raises(StaleToken):
        fence.check("r", 1, OWNER)


def test_signal_handler_may_use_a_fence_that_its_thread_is_using(fence: Fence) -> None:
    """The handler runs while the thread is inside the fence: waiting for a mutex there would deadlock."""
    number = 0
    while True:
        handler = HandlerInjector(number, lambda: fence.check("other", 1, OWNER))
        with handler:
            fence.check("r", 1, OWNER)
        if not handler.handled:
            break
        number += 1
    assert number > 20
