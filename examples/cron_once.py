"""A job that cron starts on every host at the same minute, and that runs on one of them.

``at_least`` keeps the lock after a short run: a host whose clock is some seconds behind finds it busy, and skips.

``python examples/cron_once.py``
"""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import holdfast

HOSTS = 3
all_tried = threading.Barrier(HOSTS)


def start_on(host: str) -> str:
    """What cron starts on one host. It connects by itself."""
    with holdfast.connect(label=host) as locks:

        @locks.locked("{day}", prefix="clean-up", on_busy="skip", default="skipped", at_least="5s")
        def clean_up(day: str) -> str:
            return "cleaned up"

        outcome = clean_up("2026-11-17")
        all_tried.wait()  # a process that ends gives back its locks; here all hosts are one process
        return outcome


def main() -> None:
    with ThreadPoolExecutor(HOSTS) as hosts:
        outcomes = sorted(hosts.map(start_on, [f"host-{number}" for number in range(HOSTS)]))
    print(", ".join(outcomes))


if __name__ == "__main__":
    main()
