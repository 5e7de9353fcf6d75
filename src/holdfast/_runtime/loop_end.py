"""Closing a client before its event loop is closed, for clients that the program has no name for."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable


def at_loop_end(close: Callable[[], Awaitable[None]]) -> AsyncGenerator[None, None]:
    """Have ``close`` awaited before the running loop ends, or when the result is garbage. Keep the result until then.

    ``asyncio.run``, and most servers, close the async generators of a loop before the loop; the generator here has no
    other purpose. A loop that is closed without ``shutdown_asyncgens()`` leaves connections to the garbage collector,
    with a ResourceWarning.
    """
    import asyncio  # here: a sync program would pay for it

    generator = _closing(close)
    if getattr(asyncio.get_running_loop(), "_asyncgens_shutdown_called", False):
        return generator  # the loop has closed its generators already, and would only warn about one more
    try:
        generator.__anext__().__await__().send(None)  # to its yield: from now on the running loop knows it
    except StopIteration:
        pass  # it has yielded
    return generator


async def _closing(close: Callable[[], Awaitable[None]]) -> AsyncGenerator[None, None]:
    try:
        yield
    finally:
        await close()
