"""Events: what a client reports to the function given as ``connect(observer=…)``.

::

    def observer(event: holdfast.observer.Event) -> None:
        match event:
            case holdfast.observer.Lost():
                alert(f"{event.name} lost: {event.reason}")

    locks = holdfast.connect(url, observer=observer)

Read ``events.py`` first: all events. The core calls ``reports.py``, which only puts a record in a queue.
``delivery.py`` has the queue and the thread that calls the observer.
"""

from __future__ import annotations

from holdfast.observer.events import (
    Acquired,
    AcquireFailed,
    Broken,
    Busy,
    Dropped,
    Event,
    FencePassed,
    FenceRefused,
    Lost,
    Observer,
    Released,
    RenewalFailed,
    Renewed,
    Waiting,
)

__all__ = [
    "AcquireFailed",
    "Acquired",
    "Broken",
    "Busy",
    "Dropped",
    "Event",
    "FencePassed",
    "FenceRefused",
    "Lost",
    "Observer",
    "Released",
    "RenewalFailed",
    "Renewed",
    "Waiting",
]
