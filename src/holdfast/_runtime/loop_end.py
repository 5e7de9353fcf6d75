"""Closing a client before its event loop is closed, for clients that the program cannot close itself."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable


def at_loop_end(close: Callable[[], Awaitable[None]]) -> AsyncGenerator[None, None]:
    """Await ``close`` before the running loop ends, or when the result becomes garbage. The caller keeps the result.

    ``asyncio.run``, and most servers, close the async generators of a loop before the loop; this generator has no other
    purpose. A loop that is closed without ``shutdown_asyncgens()`` leaves connections to the garbage collector, with a
    ResourceWarning.
    """
    import asyncio  # imported here: sync programs do not need it

    generator = _closing(close)
    if getattr(asyncio.get_running_loop(), "_asyncgens_shutdown_called", False):
        return generator  # the loop has closed its generators already; starting another one would only warn
    try:
        generator.__anext__().__await__().send(None)  # run it to its yield, which registers it with the loop
    except StopIteration:
        pass  # it has yielded
    return generator


async def _closing(close: Callable[[], Awaitable[None]]) -> AsyncGenerator[None, None]:
    try:
        yield
    finally:
        await close()
