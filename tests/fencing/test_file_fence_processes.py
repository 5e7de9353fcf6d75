"""FileFence between real processes: read-modify-write, kill -9, fork."""

from __future__ import annotations

import itertools
import os
import signal
import time
from pathlib import Path

import pytest

from holdfast.errors import StaleToken
from holdfast.fencing import FileFence

from .processes import programs

# Each update has a new, larger token (from a clock shared by the host), and no lock precedes the fence.
_ADD = """
import time
number, register, log = int(sys.argv[2]), sys.argv[3], sys.argv[4]
report("ready"); read_line()
acknowledged = refused = 0
for _ in range(60):
    token = time.monotonic_ns()
    try:
        with fence.guard("register", token, f"p{number}"):
            with open(register) as file: value = int(file.read())
            with open(log, "a") as file: print(token, file=file)
            with open(register, "w") as file: file.write(str(value + 1))
        acknowledged += 1
    except StaleToken:
        refused += 1
report(acknowledged)
"""


def test_acknowledged_updates_are_kept_and_tokens_only_rise(tmp_path: Path) -> None:
    register, log = tmp_path / "register", tmp_path / "log"
    register.write_text("0")
    with programs(4, _ADD, tmp_path / "fence", register, log) as adders:
        assert [adder.answer() for adder in adders] == ["ready"] * 4
        for adder in adders:
            adder.send("go")
        acknowledged = [int(adder.answer()) for adder in adders]
        assert [adder.result() for adder in adders] == [0] * 4
    tokens = [int(line) for line in log.read_text().split()]
    assert int(register.read_text()) == sum(acknowledged) == len(tokens) > 0
    assert all(earlier < later for earlier, later in itertools.pairwise(tokens))


_STAY_INSIDE = """
with fence.guard("r", 5, "victim"):
    report("inside")
    read_line()
"""


def test_kill_9_inside_a_guard_frees_the_fence_and_keeps_the_token(tmp_path: Path) -> None:
    with programs(1, _STAY_INSIDE, tmp_path / "fence") as (victim,):
        assert victim.answer() == "inside"
        fence = FileFence(tmp_path / "fence")
        with pytest.raises(TimeoutError), fence.guard("r", 6, "next", timeout=0.05):
            raise AssertionError("let in while the other was inside")
        victim.kill()
        with pytest.raises(StaleToken):
            fence.check("r", 4, "victim")
        with pytest.raises(StaleToken):
            fence.check("r", 5, "another owner")
        with fence.guard("r", 6, "next", timeout=0):
            pass


# Stores continuously: after a kill at any point, every reported token is still stored.
_RISE = """
token = int(sys.argv[3])
while True:
    token += 1
    fence.check("r", token, "riser")
    report(token)
"""


def test_kill_9_while_storing_never_lowers_the_token(tmp_path: Path) -> None:
    acknowledged = 0
    for round_ in range(12):
        with programs(1, _RISE, tmp_path / "fence", acknowledged) as (riser,):
            for _ in range(1 + 7 * round_):
                acknowledged = int(riser.answer())
            riser.kill()
            while line := riser.answer():  # reported before it was killed
                acknowledged = int(line)
        fence = FileFence(tmp_path / "fence")
        with pytest.raises(StaleToken) as refused:
            fence.check("r", acknowledged - 1, "riser")
        assert refused.value.seen in (acknowledged, acknowledged + 1)
        acknowledged = refused.value.seen


_FORK = """
reader, writer = os.pipe()
with fence.guard("r", 5, "parent"):
    child = os.fork()
    if child == 0:
        os.read(reader, 1)
        try:
            fence.check("r", 6, "child")  # opens its own descriptors
        except BaseException as error:
            os.write(2, repr(error).encode()); os._exit(1)
        os._exit(0)
    pid, _ = os.waitpid(child, os.WNOHANG)
    report("child waits" if pid == 0 else "child ended")
os.write(writer, b"!")
report(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
try:
    fence.check("r", 5, "parent")
except StaleToken as refused:
    report(refused.seen)
"""


def test_forked_child_uses_the_fence_on_its_own(tmp_path: Path) -> None:
    with programs(1, _FORK, tmp_path / "fence") as (parent,):
        assert [parent.answer() for _ in range(3)] == ["child waits", "0", "6"]
        assert parent.result() == 0


_FORK_INSIDE = """
import signal
if sys.argv[3] == "leave":
    try:
        with fence.guard("r", 5, "parent"):
            parent = os.getpid()
            if os.fork(): read_line()
    except LockError as error:
        assert os.getpid() != parent
        report(type(error).__name__); os._exit(0)
else:
    with fence.guard("r", 5, "parent"):
        if os.fork() == 0:
            report("child runs")
            os.close(0); os.close(1)
            signal.pause()
        read_line()
"""


def test_child_that_leaves_the_guard_of_its_parent_gets_an_error_and_does_not_free_it(tmp_path: Path) -> None:
    with programs(1, _FORK_INSIDE, tmp_path / "fence", "leave") as (parent,):
        assert parent.answer() == "UsageError"
        fence = FileFence(tmp_path / "fence")
        with pytest.raises(TimeoutError), fence.guard("r", 6, timeout=0.05):
            raise AssertionError("the child freed its parent's guard")
        parent.send("go on")
        assert parent.result() == 0
        with fence.guard("r", 6, timeout=0):
            pass


def test_child_does_not_keep_the_guard_of_a_killed_parent(tmp_path: Path) -> None:
    with programs(1, _FORK_INSIDE, tmp_path / "fence", "stay") as (parent,):
        assert parent.answer() == "child runs"
        (child,) = Path(f"/proc/{parent.process.pid}/task/{parent.process.pid}/children").read_text().split()
        parent.kill()
        try:
            with FileFence(tmp_path / "fence").guard("r", 6, timeout=0):
                pass
            assert Path(f"/proc/{child}").exists()
        finally:
            os.kill(int(child), signal.SIGKILL)


_FORK_AFTER_ASYNC = """
import asyncio, warnings
warnings.simplefilter("ignore", DeprecationWarning)  # of forking beside threads, which is the point here
async def write(token):
    async with fence.guard("r", token): pass
asyncio.run(write(1))
if child := os.fork():
    os.waitpid(child, 0)
else:
    import signal; signal.setitimer(signal.ITIMER_REAL, 30)  # if it hangs, it must not outlive the test for long
    asyncio.run(write(2))
    report("child wrote")
    os._exit(0)
"""


def test_child_forked_after_async_use_has_its_own_disk_threads(tmp_path: Path) -> None:
    with programs(1, _FORK_AFTER_ASYNC, tmp_path / "fence") as (parent,):
        assert parent.answer() == "child wrote"
        assert parent.result() == 0


def test_frozen_waiter_is_not_granted_the_fence(tmp_path: Path) -> None:
    """With a queue in the kernel the stopped process would be next and block every other process."""
    wait = 'report("waiting")\nwith fence.guard("r", 1, "waiter"): report("inside")\n'
    fence = FileFence(tmp_path / "fence")
    with programs(1, wait, tmp_path / "fence") as (waiter,):
        with fence.guard("r", 1, "waiter"):
            assert waiter.answer() == "waiting"
            os.kill(waiter.process.pid, signal.SIGSTOP)
            stopped = os.waitid(os.P_PID, waiter.process.pid, os.WSTOPPED | os.WNOWAIT)
            assert stopped is not None
        deadline = time.monotonic() + 10
        with fence.guard("r", 1, "waiter", timeout=5):
            assert time.monotonic() < deadline
        os.kill(waiter.process.pid, signal.SIGCONT)
        assert waiter.answer() == "inside"
        assert waiter.result() == 0
