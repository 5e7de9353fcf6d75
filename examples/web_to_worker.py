"""A web request takes a lock, checks its order, and hands the held lock to a worker process with the job.

Between the check and the work no other request gets the lock, and the worker has a token of its own.

``python examples/web_to_worker.py``
"""

from __future__ import annotations

import multiprocessing

import holdfast

ORDER = "order:7"


def work(ticket: str) -> None:
    """The worker: takes the lock over, and holds it while it works."""
    with holdfast.connect() as locks, locks.attach(ticket) as lease:
        print(f"worker: holds {lease.name}", flush=True)


def main() -> None:
    with holdfast.connect() as locks:
        lease = locks.lock(ORDER, ttl=60, timeout=5).acquire()
        print(f"request: checked {lease.name}", flush=True)
        ticket = lease.detach()  # a secret: it goes to the worker, and into no log
        print(f"request: holds it no more ({lease.held}), and it is {locked(locks)}", flush=True)
        worker = multiprocessing.get_context("spawn").Process(target=work, args=(ticket,))
        worker.start()
        worker.join()
        print(f"afterwards it is {locked(locks)}", flush=True)


def locked(locks: holdfast.Client) -> str:
    return "locked" if locks.lock(ORDER).locked() else "free"


if __name__ == "__main__":
    main()
