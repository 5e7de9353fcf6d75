"""What counts as one caller: the running task, the running job of a pool, or the context of a thread."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import sys
import threading
from collections.abc import Hashable
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.pool import ThreadPool
from types import ModuleType

import pytest

from holdfast._runtime.callers import current_caller


async def _current() -> Hashable:
    return current_caller()


def test_one_thread_is_one_caller_and_another_thread_another() -> None:
    others: list[Hashable] = []
    thread = threading.Thread(target=lambda: others.extend((current_caller(), current_caller())))
    thread.start()
    thread.join()
    assert others[0] == others[1] != current_caller() == current_caller()


@pytest.mark.parametrize("module", ["asyncio", "asgiref.current_thread_executor"])
def test_a_caller_is_known_while_another_thread_imports(module: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A module is there before its functions are. A caller that leaves a ``with`` block must not fail by that."""
    own = current_caller()
    monkeypatch.setitem(sys.modules, module, ModuleType(module))
    assert current_caller() == own


def test_a_context_run_inside_a_caller_is_that_caller() -> None:
    own = current_caller()
    assert contextvars.copy_context().run(current_caller) == own


async def test_each_task_is_a_caller_also_where_tasks_share_a_context() -> None:
    own = current_caller()
    context = contextvars.copy_context()
    first, second = await asyncio.gather(
        asyncio.create_task(_current(), context=context), asyncio.create_task(_current(), context=context)
    )
    assert len({own, first, second}) == 3
    assert current_caller() == own


async def test_a_task_that_has_ended_is_equal_to_no_later_one() -> None:
    ended = await asyncio.create_task(_current())
    gc.collect()
    hash(ended)  # as a key, also when its task is gone
    assert await asyncio.create_task(_current()) != ended


async def test_each_job_of_to_thread_is_a_caller_also_if_its_parent_is_one() -> None:
    loop = asyncio.get_running_loop()
    loop.set_default_executor(ThreadPoolExecutor(1))
    current_caller()
    threads = [await asyncio.to_thread(lambda: (threading.get_ident(), current_caller())) for _ in range(2)]
    assert threads[0][0] == threads[1][0]
    assert threads[0][1] != threads[1][1]


def test_each_job_of_a_thread_pool_is_a_caller() -> None:
    with ThreadPoolExecutor(1) as pool:
        first, second = (pool.submit(lambda: (current_caller(), current_caller())).result() for _ in range(2))
    assert first[0] == first[1]
    assert second[0] == second[1]
    assert first[0] != second[0]


def test_each_job_of_a_multiprocessing_thread_pool_is_a_caller() -> None:
    with ThreadPool(1) as pool:
        first, second = (pool.apply(lambda: (current_caller(), current_caller())) for _ in range(2))
    assert first[0] == first[1]
    assert second[0] == second[1]
    assert first[0] != second[0]


def test_contexts_that_take_turns_on_one_thread_are_callers_of_their_own() -> None:
    """As anyio's worker threads run their jobs: each in a copy of the submitter's context."""
    current_caller()
    contexts = [contextvars.copy_context() for _ in range(2)]
    seen: list[Hashable] = []
    thread = threading.Thread(target=lambda: seen.extend(context.run(current_caller) for context in contexts * 2))
    thread.start()
    thread.join()
    assert seen[0] == seen[2] != seen[1] == seen[3]


def test_each_call_in_a_callback_of_a_loop_is_a_caller() -> None:
    current_caller()
    seen: list[Hashable] = []
    loop = asyncio.new_event_loop()
    for _ in range(2):
        loop.call_soon(lambda: seen.append(current_caller()))
    loop.call_soon(loop.stop)
    loop.run_forever()
    loop.close()
    assert seen[0] != seen[1]
