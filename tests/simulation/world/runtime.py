"""The simulated runtime: a virtual clock and a seeded scheduler, so that a seed replays a run exactly.

A :class:`Simulator` steps coroutines. Whenever several are ready, its random generator chooses one. Time does not
advance while any task is ready; then it jumps to the next timer. Tasks belong to a :class:`Process`. It can be paused
(as by SIGSTOP: none of its tasks runs, time goes on, its timers are overdue when it resumes) or crashed (as by SIGKILL:
its ``finally`` blocks have no effect).

Every process has its own clock, with another zero and a slightly different rate. Code that compares the clocks of two
processes, or of a process and a server, fails.
"""

from __future__ import annotations

import heapq
import logging
import math
import random
import types
from collections.abc import Callable, Coroutine, Generator, Hashable, Sequence
from typing import Any, Final

_log: Final = logging.getLogger("holdfast.callbacks")

# So many steps without any time passing is a busy loop, which would use a whole core of a real machine.
_SPIN: Final = 20_000
_TASK_TIMER_OFF: Final = -1


class Cancelled(BaseException):
    """Raised in a simulated task by :meth:`Task.cancel`. It stands for asyncio's cancellation and for Ctrl-C."""


class ProcessDied(BaseException):
    """Raised by every await of a task whose process has crashed, if the interpreter still runs its cleanup."""


class Stuck(AssertionError):
    """Raised when tasks wait without a timeout and no event can wake them, or when a task is in a busy loop."""


@types.coroutine
def _suspend(until: float | None) -> Generator[float | None, bool, bool]:
    return (yield until)


class Task:
    """One coroutine of a process."""

    __slots__ = (
        "_failure",
        "_generation",
        "_parked",
        "coroutine",
        "daemon",
        "done",
        "name",
        "process",
        "signal_in",
        "until",
    )

    def __init__(self, process: Process, coroutine: Coroutine[Any, Any, Any], name: str, daemon: bool) -> None:
        self.process = process
        self.coroutine = coroutine
        self.name = name
        self.daemon = daemon
        self.done = Signal(process)
        self.until: float | None = None  #: simulated time at which the present wait times out
        self.signal_in: int | None = None  #: a signal handler raises at this call of the runtime, from now on
        self._parked = False
        self._generation = 0  # lets a timer detect that its wait is over
        self._failure: BaseException | None = None

    def cancel(self) -> None:
        """Raises :class:`Cancelled` at the present await."""
        if not self.done.is_set() and self is not self.process.simulator.current:
            self._failure = Cancelled()
            self.signal_in = None  # one at a time: its clean-up is not interrupted
            self.wake()

    def calls_runtime(self) -> None:
        """Raises :class:`Cancelled` if a signal is due: not at an await, but between two steps of the task."""
        if self.signal_in is not None:
            self.signal_in -= 1
            if self.signal_in < 0:
                self.signal_in = None
                raise Cancelled

    def wake(self) -> None:
        """Makes the task ready; without effect if it already is."""
        if self._parked:
            self._parked = False
            self._generation += 1
            self.process.enqueue(self)

    def where(self) -> str:
        """The chain of awaits, innermost last."""
        frames = []
        inner: Any = self.coroutine
        while (frame := getattr(inner, "cr_frame", None)) is not None:
            frames.append(f"{frame.f_code.co_qualname}:{frame.f_lineno}")
            inner = inner.cr_await
        return f"{self.process.name}/{self.name}: {' > '.join(frames)}"


class Signal:
    """Both an event and a wake-up of the runtime: its waiters become ready once it is set."""

    __slots__ = ("_flag", "_process", "_waiters")

    def __init__(self, process: Process) -> None:
        self._process = process
        self._flag = False
        self._waiters: list[Task] = []

    def set(self) -> None:
        self._flag = True
        for task in self._waiters:
            task.wake()

    def clear(self) -> None:
        self._flag = False

    def is_set(self) -> bool:
        return self._flag

    async def wait(self, until: float | None = None) -> bool:
        return await self._process.wait_any((self,), until)

    def close(self) -> None:
        self._waiters.clear()

    @property
    def closed(self) -> bool:
        return False


class _Event(Signal):
    """An event of the runtime. A signal may arrive when it is set."""

    __slots__ = ()

    def set(self) -> None:
        self._process.simulator.calls_runtime()
        super().set()


class Process:
    """Tasks that are paused and crash together, and their clock."""

    def __init__(self, simulator: Simulator, name: str, *, offset: float = 0.0, rate: float = 1.0) -> None:
        self.simulator = simulator
        self.name = name
        self.offset = offset
        self.rate = rate
        self.paused = False
        self.resumed = 0.0  #: simulated time of the last resume
        self.dead = False
        self.tasks: dict[Task, None] = {}  # a dict, not a set: its order is the same in every run
        self._stalled: list[Task] = []

    def now(self) -> float:
        """This process's clock."""
        return self.offset + self.simulator.time * self.rate

    def simulated(self, when: float) -> float:
        """The first simulated time at which this process's clock shows at least ``when``."""
        time = (when - self.offset) / self.rate
        while self.offset + time * self.rate < when:  # rounding: a sleeper must not wake too early
            time = math.nextafter(time, math.inf)
        return time

    def spawn(self, coroutine: Coroutine[Any, Any, Any], name: str, *, daemon: bool = False) -> Task:
        """Starts a task. A daemon that waits forever is not a deadlock."""
        task = Task(self, coroutine, name, daemon)
        self.tasks[task] = None
        if self.dead:
            coroutine.close()
        else:
            self.enqueue(task)
        return task

    def enqueue(self, task: Task) -> None:
        if self.paused:
            self._stalled.append(task)
        elif not self.dead:
            self.simulator.ready.append(task)

    def pause(self) -> None:
        """Like SIGSTOP."""
        if not self.paused and not self.dead:
            self.paused = True
            ready = self.simulator.ready
            self._stalled = [task for task in ready if task.process is self]
            ready[:] = [task for task in ready if task.process is not self]

    def resume(self) -> None:
        """Like SIGCONT."""
        if self.paused:
            self.paused = False
            self.resumed = self.simulator.time
            stalled, self._stalled = self._stalled, []
            for task in stalled:
                self.enqueue(task)

    def crash(self) -> None:
        """Like SIGKILL. The coroutines are kept, unclosed, so that not even the interpreter runs their cleanup."""
        self.dead = True
        self._stalled.clear()
        ready = self.simulator.ready
        ready[:] = [task for task in ready if task.process is not self]

    async def wait_any(self, signals: Sequence[Signal], until: float | None) -> bool:
        """True as soon as one of ``signals`` is set; False at ``until`` on this process's clock."""
        task = self.simulator.current
        if task is None:
            raise ProcessDied
        end = None if until is None or until == math.inf else self.simulated(until)
        while not any(signal._flag for signal in signals):
            for signal in signals:
                signal._waiters.append(task)
            try:
                await _suspend(end)  # also when ``end`` has passed: at every wait other tasks may run
            finally:
                for signal in signals:
                    if task in signal._waiters:
                        signal._waiters.remove(task)
            if end is not None and self.simulator.time >= end:
                return any(signal._flag for signal in signals)
        return True


class Simulator:
    """Virtual time, the tasks that are ready, and one random generator for all decisions."""

    def __init__(self, seed: int | str) -> None:
        self.random = random.Random(seed)
        self.time = 0.0
        self.current: Task | None = None
        self.ready: list[Task] = []
        self.steps = 0
        #: Called before each step (it may pause or crash the task's process) and after each (to look at the state).
        self.before_step: Callable[[Task], None] | None = None
        self.after_step: Callable[[], None] | None = None
        self.processes: list[Process] = []
        self._timers: list[tuple[float, int, Task | Callable[[], None], int]] = []
        self._sequence = 0
        self._still = 0
        self._stopped = False

    def process(self, name: str, *, offset: float = 0.0, rate: float = 1.0) -> Process:
        """A new process."""
        process = Process(self, name, offset=offset, rate=rate)
        self.processes.append(process)
        return process

    def call_at(self, time: float, callback: Callable[[], None]) -> None:
        """Runs ``callback`` at a simulated time, outside any process."""
        self._sequence += 1
        heapq.heappush(self._timers, (time, self._sequence, callback, _TASK_TIMER_OFF))

    def call_later(self, delay: float, callback: Callable[[], None]) -> None:
        self.call_at(self.time + delay, callback)

    def calls_runtime(self) -> None:
        """Delivers a signal to the running task if one is due."""
        if self.current is not None:
            self.current.calls_runtime()

    def stop(self) -> None:
        """Makes :meth:`run` return after the present step."""
        self._stopped = True

    def run(self, until: float = math.inf) -> None:
        """Steps tasks until ``until``, until :meth:`stop`, or until none is left.

        Raises the exception of a task, and :class:`Stuck` if a task that is no daemon waits and no event can wake it.
        """
        self._stopped = False
        while not self._stopped:
            if self.ready:
                self._step()
            elif self._timers and self._timers[0][0] <= until:
                self._advance()
            else:
                if not self._timers:
                    self._check_deadlock()
                if until < math.inf:
                    self.time = max(self.time, until)
                return

    def _advance(self) -> None:
        time, _, target, generation = heapq.heappop(self._timers)
        if isinstance(target, Task) and target._generation != generation:
            return  # it was woken earlier
        if time > self.time:
            self.time = time
            self._still = 0
        if isinstance(target, Task):
            target.wake()
        else:
            target()
            if self.after_step is not None:
                self.after_step()

    def _step(self) -> None:
        ready = self.ready
        index = int(self.random.random() * len(ready))
        task = ready[index]
        if self.before_step is not None:
            self.before_step(task)
            if task.process.paused or task.process.dead:
                return
        ready[index] = ready[-1]
        ready.pop()
        self.steps += 1
        self._still += 1
        if self._still > _SPIN:
            raise Stuck(f"a busy loop at {self.time:.6f}: {task.where()}")
        self._resume(task)
        if self.after_step is not None:
            self.after_step()

    def _resume(self, task: Task) -> None:
        failure, task._failure = task._failure, None
        self.current = task
        try:
            until = task.coroutine.send(None) if failure is None else task.coroutine.throw(failure)
        except (StopIteration, Cancelled):
            self._finish(task)
        except BaseException:
            self._finish(task)
            raise
        else:
            task.until = until
            task._parked = True
            if until is not None:
                self._sequence += 1
                heapq.heappush(self._timers, (until, self._sequence, task, task._generation))
        finally:
            self.current = None
            # Its traceback refers to this frame and to others with users' objects: the cycle would keep them alive.
            failure = None

    def _finish(self, task: Task) -> None:
        task.process.tasks.pop(task, None)
        task.done.set()

    def _check_deadlock(self) -> None:
        waiting = [
            task.where()
            for process in self.processes
            if not process.dead and not process.paused
            for task in process.tasks
            if task.until is None and not task.daemon
        ]
        if waiting:
            raise Stuck("deadlock: nothing is left that could wake\n  " + "\n  ".join(waiting))

    def close(self) -> None:
        """Ends every task. The interpreter runs their cleanup now, but each await in it raises ProcessDied."""
        self._stopped = True
        for process in self.processes:
            process.crash()
        for process in self.processes:
            for task in process.tasks:
                try:
                    task.coroutine.close()
                except (ProcessDied, RuntimeError):
                    pass  # the cleanup tried to act or to wait
            process.tasks.clear()


class SimulatedRuntime:
    """The runtime port of one simulated process."""

    callers_hang_alone = False
    switches_threads = True  # as far as overtaking goes, which is to be simulated

    def __init__(self, process: Process) -> None:
        self.process = process
        self.simulator = process.simulator

    def now(self) -> float:
        self.simulator.calls_runtime()
        return self.process.now()

    def caller(self) -> Hashable:
        return self.simulator.current

    def at_home(self) -> bool:
        return True

    def describer(self, label: str | None) -> Callable[[], bytes]:
        return lambda: b"{}"

    async def sleep_until(self, when: float) -> None:
        await self.process.wait_any((), when)

    def event(self) -> Signal:
        return _Event(self.process)

    def wakeup(self) -> Signal:
        return Signal(self.process)

    async def readable(self, filenos: Sequence[int], until: float | None) -> bool:
        raise NotImplementedError("there are no descriptors in a simulation")

    def spawn(self, main: Callable[[], Coroutine[Any, Any, None]], name: str) -> None:
        if not self.process.dead:
            self.process.spawn(main(), name, daemon=True)

    def dispatch(self, callback: Callable[[], Any]) -> None:
        async def call() -> None:
            try:
                callback()
            except Exception:
                _log.exception("an on_lost callback raised")

        if not self.process.dead:
            self.process.spawn(call(), "callback", daemon=True)
