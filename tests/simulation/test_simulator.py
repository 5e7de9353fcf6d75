"""The simulated runtime: time, order, pause, crash, cancellation, deadlock."""

from __future__ import annotations

import math

import pytest

from tests.simulation.world.runtime import Cancelled, Process, Signal, SimulatedRuntime, Simulator, Stuck


def order_of(seed: int, tasks: int = 6) -> list[int]:
    """The order in which tasks that are ready at the same time are stepped."""
    simulator = Simulator(seed)
    process = simulator.process("p")
    order: list[int] = []

    async def note(number: int) -> None:
        order.append(number)

    for number in range(tasks):
        process.spawn(note(number), f"t{number}")
    simulator.run()
    return order


def test_order_of_tasks_depends_on_the_seed_only() -> None:
    assert order_of(1) == order_of(1)
    assert len({tuple(order_of(seed)) for seed in range(20)}) > 10


def test_time_jumps_and_every_clock_has_its_own_zero_and_rate() -> None:
    simulator = Simulator(0)
    process = simulator.process("p", offset=1000.0, rate=1.01)
    runtime = SimulatedRuntime(process)
    woke: list[float] = []

    async def sleeper() -> None:
        for _ in range(100):
            when = runtime.now() + 36.5
            await runtime.sleep_until(when)
            assert runtime.now() >= when
        woke.append(simulator.time)

    process.spawn(sleeper(), "sleeper")
    simulator.run()
    assert woke == [pytest.approx(3650.0 / 1.01)]


def test_event_wakes_its_waiter_before_the_timeout_or_the_wait_times_out() -> None:
    simulator = Simulator(0)
    runtime = SimulatedRuntime(simulator.process("p"))
    event = runtime.event()
    answers: list[tuple[float, bool]] = []

    async def waiter() -> None:
        answers.append((simulator.time, await event.wait(1.0)))
        answers.append((simulator.time, await event.wait(9.0)))
        answers.append((simulator.time, await event.wait(None)))

    runtime.spawn(waiter, "waiter")
    simulator.call_at(3.0, event.set)
    simulator.run()
    assert answers == [(0.0, False), (1.0, True), (3.0, True)]


def test_paused_process_runs_nothing_and_resumes_with_overdue_timers() -> None:
    simulator = Simulator(0)
    process = simulator.process("p")
    runtime = SimulatedRuntime(process)
    woke: list[float] = []

    async def sleeper() -> None:
        await runtime.sleep_until(1.0)
        woke.append(simulator.time)

    process.spawn(sleeper(), "sleeper")
    simulator.call_at(0.5, process.pause)
    simulator.call_at(7.0, process.resume)
    simulator.run(6.0)
    assert woke == []
    simulator.run()
    assert woke == [7.0]


def test_cleanup_of_a_crashed_process_has_no_effect() -> None:
    simulator = Simulator(0)
    process = simulator.process("p")
    runtime = SimulatedRuntime(process)
    acts: list[str] = []

    async def victim() -> None:
        try:
            await runtime.sleep_until(5.0)
            acts.append("woke")
        finally:
            if not process.dead:
                acts.append("cleaned up while alive")
            await runtime.sleep_until(6.0)
            acts.append("waited after death")

    process.spawn(victim(), "victim")
    simulator.call_at(1.0, process.crash)
    simulator.run()
    simulator.close()
    runtime.spawn(victim, "after death")
    simulator.run()
    assert acts == []


def test_cancel_is_raised_at_the_await_and_cleanup_may_wait() -> None:
    simulator = Simulator(0)
    process = simulator.process("p")
    runtime = SimulatedRuntime(process)
    acts: list[str] = []

    async def victim() -> None:
        try:
            await runtime.sleep_until(math.inf)
        except Cancelled:
            await runtime.sleep_until(2.0)
            acts.append("cleaned up")
            raise

    task = process.spawn(victim(), "victim")
    simulator.call_at(1.0, task.cancel)
    simulator.run()
    assert acts == ["cleaned up"]
    assert task.done.is_set()
    assert simulator.time == 2.0


def test_deadlock_is_reported_with_the_place_where_each_task_waits() -> None:
    simulator = Simulator(0)
    process = simulator.process("p")

    async def waits_forever(signal: Signal) -> None:
        await signal.wait()

    process.spawn(waits_forever(Signal(process)), "stuck")
    process.spawn(waits_forever(Signal(process)), "background", daemon=True)
    with pytest.raises(Stuck, match=r"p/stuck: .*waits_forever") as stuck:
        simulator.run(100.0)
    assert "background" not in str(stuck.value)
    simulator.close()


def test_busy_loop_is_reported() -> None:
    simulator = Simulator(0)
    runtime = SimulatedRuntime(simulator.process("p"))

    async def spins() -> None:
        while True:
            await runtime.sleep_until(runtime.now())

    runtime.spawn(spins, "spinner")
    with pytest.raises(Stuck, match="busy loop"):
        simulator.run()
    simulator.close()


def test_caller_is_the_running_task() -> None:
    simulator = Simulator(0)
    runtime = SimulatedRuntime(simulator.process("p"))
    callers: list[object] = []

    async def note() -> None:
        callers.append(runtime.caller())
        await runtime.sleep_until(1.0)
        callers.append(runtime.caller())

    runtime.spawn(note, "one")
    runtime.spawn(note, "two")
    simulator.run()
    assert len(callers) == 4
    assert len(set(callers)) == 2


def test_callback_that_raises_is_logged_and_does_not_stop_the_run(caplog: pytest.LogCaptureFixture) -> None:
    simulator = Simulator(0)
    runtime = SimulatedRuntime(simulator.process("p"))
    runtime.dispatch(lambda: 1 / 0)
    simulator.run()
    assert "on_lost callback raised" in caplog.text


async def _sleep_often(process: Process, times: int) -> None:
    for _ in range(times):
        await process.wait_any((), process.now() + 0.01)


def test_steps_are_counted() -> None:
    simulator = Simulator(0)
    process = simulator.process("p")
    for number in range(10):
        process.spawn(_sleep_often(process, 100), f"t{number}")
    simulator.run()
    assert simulator.steps == 10 * 101
    assert simulator.time == pytest.approx(1.0)
