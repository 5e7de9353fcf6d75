"""Starting background threads, safe from signal handlers that raise."""

from __future__ import annotations

import _thread
import threading
from collections.abc import Callable


def start_daemon(main: Callable[[], object], name: str) -> threading.Thread:
    """Start a daemon thread. RuntimeError if the system refuses another thread.

    ``Thread.start`` waits on a condition. Interrupted there by a signal handler, it may raise ``release unlocked lock``
    instead of the handler's exception, or leave the condition locked, and the new thread waits for it forever. Handlers
    run on the main thread only, so another thread does the start.
    """
    thread = threading.Thread(target=main, name=name, daemon=True)
    if threading.get_ident() != threading.main_thread().ident:
        thread.start()
        return thread
    failures: list[BaseException] = []
    started = _thread.allocate_lock()
    started.acquire()

    def start() -> None:
        try:
            thread.start()
        except BaseException as failure:
            failures.append(failure)
        finally:
            started.release()

    _thread.start_new_thread(start, ())
    started.acquire()
    if failures:
        raise failures[0]
    return thread
