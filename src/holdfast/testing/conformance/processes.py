"""Helper processes: a client in a process of its own that does what the test asks, and may be frozen or killed."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from typing import Any, Final

from holdfast.testing.conformance.world import World

_ANSWERS_WITHIN: Final = 30.0


class Helper:
    """The test's end of a helper process; :mod:`holdfast.testing.conformance.child` is the other."""

    def __init__(self, process: asyncio.subprocess.Process, patience: float) -> None:
        self._process = process
        self._patience = patience

    @property
    def pid(self) -> int:
        return self._process.pid

    async def ask(self, what: str, **facts: Any) -> Any:
        """Have it do ``what`` (a function of child.py) and return its answer; what it raised fails the test."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps([what, facts]).encode() + b"\n")
        return await self.answer()

    async def answer(self) -> Any:
        assert self._process.stdout is not None
        line = await asyncio.wait_for(self._process.stdout.readline(), self._patience)
        assert line, f"the helper process ended with {await self._process.wait()}"
        answer = json.loads(line)
        assert "raised" not in answer, answer["raised"]
        return answer["value"]

    def freeze(self) -> None:
        os.kill(self.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    async def kill(self) -> None:
        self._process.kill()
        await self._process.wait()

    async def leave(self) -> None:
        """Have its interpreter exit in the ordinary way, with nothing closed or released before."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        code = await asyncio.wait_for(self._process.wait(), self._patience)
        assert code == 0, f"the helper process ended with {code}"


@contextlib.asynccontextmanager
async def helper(world: World, **keywords: Any) -> AsyncIterator[Helper]:
    """A helper process with a client of the same API, opened with ``keywords``. It is killed when the block ends."""
    process = await start("child", world, keywords)
    try:
        yield Helper(process, world.paced(_ANSWERS_WITHIN))
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def start(module: str, world: World, facts: Any) -> asyncio.subprocess.Process:
    """Run a module of this package, told where the locks are."""
    told = json.dumps([dataclasses.asdict(world.source), world.api, facts])
    return await asyncio.create_subprocess_exec(
        sys.executable, "-m", f"holdfast.testing.conformance.{module}", told,
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
    )  # fmt: skip


async def play(world: World, story: str) -> dict[str, Any]:
    """Play a story of :mod:`holdfast.testing.conformance.scenarios` in a process of its own; what it saw."""
    process = await start("scenarios", world, [story, world.name()])
    try:
        output, _ = await asyncio.wait_for(process.communicate(), world.paced(_ANSWERS_WITHIN))
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode == 0, f"the process ended with {process.returncode}"
    facts: dict[str, Any] = json.loads(output)
    return facts
