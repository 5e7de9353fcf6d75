"""Generators inside their lock. The lock is held from the first step to the end.

Between two steps the consumer's code runs, perhaps with other generators, in other tasks, threads and contexts. So
``current_lease()`` is set only while a step runs, together with the blocks that the body has opened. If the lease was
lost between two steps, LockLost is raised at the ``yield``, so that the body does not continue without its lock.
``async_generators.py`` does the same for async generators.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING, Any

from holdfast import current

if TYPE_CHECKING:
    from holdfast.lease import Lease


def steps(inner: Generator[Any, Any, Any], lease: Lease) -> Generator[Any, Any, Any]:
    """As ``yield from inner``, inside the block of ``lease``. ``inner`` is closed before that block ends."""
    value: Any = None
    thrown: BaseException | None = None
    try:
        while True:
            try:
                item = inner.send(value) if thrown is None else inner.throw(thrown)
            except StopIteration as end:
                return end.value
            value = thrown = None
            inner_blocks = current.suspend(lease)
            try:
                value = yield item
            except GeneratorExit:
                raise  # the finally clause closes ``inner``
            except BaseException as error:
                thrown = error
            finally:
                current.enter(lease)
                current.resume(inner_blocks)
            if thrown is None and lease.lost_reason is not None:
                thrown = lease._loss()
    finally:
        inner.close()
