"""Scenarios that need a process of their own: forks and signals. Each prints facts as JSON; a case checks them.

They are sync: fork and Ctrl-C concern threads.
"""

from __future__ import annotations

import json
import os
import signal
import statistics
import sys
import threading
import time
from collections.abc import Callable
from typing import Any, Final

import holdfast
from holdfast._runtime import clock
from holdfast.testing.conformance.opening import Source

Facts = dict[str, Any]

_LIMIT: Final = 10.0
#: So many interruptions of a call show something.
_ENOUGH: Final = 25


def fork(source: Source, name: str) -> Facts:
    """A child is forked while the parent holds the lock; both inspect, try and acquire it; the child exits normally."""
    client = source.open("sync", ttl=source.lasting)
    lease = client.lock(name).acquire()
    reported: list[str] = []
    lease.on_lost(lambda lease: reported.append(lease.lost_reason))
    to_parent, from_child = os.pipe()
    to_child, from_parent = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(from_parent)  # so that the child detects the parent's death
        os.write(from_child, json.dumps(_in_the_child(client, lease, name)).encode() + b"\n")
        os.read(to_child, 1)  # until the parent has released
        own = client.lock(name).acquire(timeout=_LIMIT)
        os.write(from_child, json.dumps({"token": own.token, "owner": own.owner}).encode() + b"\n")
        sys.exit(0)  # with the lock held: it is the child's own, and released at its exit
    answers = os.fdopen(to_parent)
    facts: Facts = json.loads(answers.readline())
    facts["parent lost it"] = lease.lost.wait(1.05 * lease.ttl) or lease.lost_reason or reported
    lease.release()
    os.write(from_parent, b"!")
    own = json.loads(answers.readline())
    facts["child ended with"] = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    again = client.lock(name).acquire(timeout=_LIMIT)
    facts["tokens"] = [lease.token, own["token"], again.token]
    facts["clients"] = len({owner.partition(":")[0] for owner in (lease.owner, own["owner"], again.owner)})
    again.release()
    client.close()
    return facts


def _in_the_child(client: Any, lease: Any, name: str) -> Facts:
    facts: Facts = {"child holds it": lease.held, "child's reason": lease.lost_reason}
    for what in ("check", "renew", "release"):
        try:
            getattr(lease, what)()
            facts[what] = "succeeded"
        except holdfast.LockLost as lost:
            facts[what] = lost.reason
    facts["child got it"] = client.lock(name).try_acquire() is not None
    return facts


def fork_while_threads_lock(source: Source, name: str) -> Facts:
    """Fork while other threads acquire and release: no child may inherit a locked mutex."""
    client, over = source.open("sync"), threading.Event()
    client.ping()  # so that everything is imported: a fork during an import can deadlock in Python itself

    def acquire_repeatedly(number: int) -> None:
        while not over.is_set():
            with client.lock(f"{name}{number}"):
                pass

    threads = [threading.Thread(target=acquire_repeatedly, args=(number % 2,)) for number in range(4)]
    for thread in threads:
        thread.start()
    codes = []
    for number in range(10):
        child = os.fork()
        if child == 0:
            signal.setitimer(signal.ITIMER_REAL, _LIMIT)  # ends a child that hangs, which its exit code shows
            with client.lock(f"{name}-{number}"):
                pass
            client.close()
            os._exit(0)
        codes.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    over.set()
    for thread in threads:
        thread.join(_LIMIT)
    held = [state.name for state in client.locks(name)]
    client.close()
    return {"codes": codes, "held": held, "stuck": [thread.name for thread in threads if thread.is_alive()]}


def interrupt_a_waiter(source: Source, name: str) -> Facts:
    """Ctrl-C while the main thread waits: at the engine, and behind another caller of its own client."""
    signal.signal(signal.SIGINT, signal.default_int_handler)  # in the background it may be ignored
    holder, client = source.open("sync"), source.open("sync")
    facts: Facts = {}
    main = threading.get_ident()
    strict = holder._engine.strict_order  # then no caller waits in the process

    def at_engine() -> int:
        return int(client.inspect(name).waiters)

    def in_process() -> int:
        return at_engine() if strict else int(holder._opened.queue.waiting(name))

    for where, waiting, waits in (("engine", client, at_engine), ("process", holder, in_process)):
        lease = _in_a_thread(holder.lock(name).acquire)
        _until_none_waits(at_engine)  # the place of the first waiter is removed in the background

        def interrupt(waits: Callable[[], int] = waits) -> None:
            end = time.monotonic() + _LIMIT
            while time.monotonic() < end and not waits():
                time.sleep(0.002)
            signal.pthread_kill(main, signal.SIGINT)

        thread = threading.Thread(target=interrupt)
        thread.start()
        try:
            waiting.lock(name).acquire(timeout=_LIMIT)
            facts[where] = "not interrupted"
        except KeyboardInterrupt:
            facts[where] = "interrupted"
        thread.join()
        lease.release()
        began = clock.now()
        source.open("sync").lock(name).acquire(timeout=_LIMIT).release()
        facts[f"{where}: free after"] = clock.now() - began
    facts["waiters"] = _until_none_waits(at_engine)
    return facts


def _until_none_waits(waiters: Callable[[], int]) -> int:
    """Waits until there are none, for at most ``_LIMIT``. Returns how many there are."""
    end = time.monotonic() + _LIMIT
    while (found := waiters()) and time.monotonic() < end:
        time.sleep(0.002)
    return found


def _in_a_thread(call: Callable[[], Any]) -> Any:
    results: list[Any] = []
    thread = threading.Thread(target=lambda: results.append(call()))
    thread.start()
    thread.join(_LIMIT)
    return results.pop()


def interrupt_anywhere(source: Source, name: str) -> Facts:
    """A signal handler raises at many points of acquire and release: another client gets the lock each time.

    Usually immediately. Python cannot close the last gaps (after the grant, before the caller has the lease): a lock
    that is dropped there is not renewed, so it is free within a third of the ttl.
    """
    armed = False

    def handler(number: int, frame: object) -> None:
        if armed:
            raise KeyboardInterrupt

    signal.signal(signal.SIGALRM, handler)
    client, other = source.open("sync", ttl=source.paced(1.5)), source.open("sync")
    client.lock(name).acquire().release()
    times = []
    for _ in range(10):
        began = clock.now()
        client.lock(name).acquire().release()
        times.append(clock.now() - began)
    usual = statistics.median(times)
    interrupted, worst, rounds = 0, 0.0, 120
    for number in range(5 * rounds):
        if number >= rounds and interrupted > _ENOUGH:
            break
        try:
            armed = True
            signal.setitimer(signal.ITIMER_REAL, max(1e-6, 1.2 * usual * (number % rounds) / rounds))
            client.lock(name).acquire(timeout=_LIMIT).release()
            armed = False
        except KeyboardInterrupt:
            armed = False
            interrupted += 1
        signal.setitimer(signal.ITIMER_REAL, 0)
        began = clock.now()
        other.lock(name).acquire(timeout=_LIMIT).release()
        worst = max(worst, clock.now() - began)
    return {"interrupted": interrupted, "worst": worst}


def main(source: dict[str, Any], api: str, facts: list[str]) -> None:
    scenario, name = facts
    print(json.dumps(globals()[scenario](Source(**source), name)), flush=True)


if __name__ == "__main__":
    main(*json.loads(sys.argv[1]))
