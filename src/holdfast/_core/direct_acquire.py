"""What nearly every acquire is: no other caller of this process is at the name, and the first answer grants it.

Straight-line, with no attempt, and with no coroutine if the engine blocks. Wherever it finds anything else, an
``Acquisition`` goes on from there.
"""

from __future__ import annotations

import weakref
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, Final

from holdfast._core import acquire_errors as errors
from holdfast._core import acquire_time
from holdfast._core.acquisition import Acquisition, Answer
from holdfast._core.direct_hold import DirectHold
from holdfast._core.hold import Handle
from holdfast._core.installing import install_directly
from holdfast._core.operations import Call
from holdfast._runtime.base import DONE, Rest
from holdfast.engines.base import Busy, Granted, RequestFailed
from holdfast.errors import LockError

if TYPE_CHECKING:
    from holdfast._core.core import Core
    from holdfast._core.policy import Policy

#: Answers that are there; others are awaitables.
_ANSWERS: Final = (Busy, Exception)


def acquire(core: Core, policy: Policy, timeout: float | None, handle: Handle) -> Rest:
    """A new hold, with ``handle`` as its first one. DONE: it has it. Else the rest of the acquire, to be run.

    Cancelled or interrupted, nothing stays behind: either it is undone, or ``handle`` has the hold, and is garbage.
    """
    direct, shared, key = core.direct, policy.at_engine, policy.key
    if direct is None or not policy.direct:
        return core.begin(Acquisition(core, policy, timeout), handle)
    if shared:
        if not core.shares_directly or core.nesting(policy, handle._caller) is not None:
            return core.begin(Acquisition(core, policy, timeout), handle)
    elif key in core.queue.occupants or key in direct.contended:
        return Acquisition(core, policy, timeout).start(handle)
    sent, acquiring, call = core.now(), core.acquiring, Call()
    hold = DirectHold(core, policy, handle, sent)
    try:
        acquiring.running[hold] = weakref.ref(call, acquiring.on_garbage)
        if not (shared or core.queue.occupants.setdefault(key, hold) is hold):  # one step: no lock is needed
            return _give_way(core, hold, handle, timeout)
        if core.closed:
            core.check_open()
        limit = policy.request_timeout
        if timeout is not None:
            limit = acquire_time.request_timeout(limit, timeout, sent + timeout, sent)
        answer: Answer
        try:
            if shared:
                answer = direct.acquire_shared_directly(
                    policy.mode, key, hold._owner, hold.description, policy.ttl, limit
                )
            else:
                answer = direct.acquire_directly(key, hold._owner, hold.description, policy.ttl, limit)
            if answer.__class__ is int or answer.__class__ is Granted:
                if install_directly(core, hold, answer):
                    acquiring.running.pop(hold, None)
                    if core.closed:
                        core.acquisition_left(hold)
                    return DONE
                answer = errors.late()
        except (RequestFailed, LockError) as error:
            answer = error
        if answer is None or isinstance(answer, _ANSWERS):
            return _go_on(core, hold, handle, timeout, answer)
        coroutine = _when_answered(core, hold, handle, timeout, answer)
        acquiring.running[hold] = weakref.ref(coroutine, acquiring.on_garbage)
        return coroutine
    except BaseException:
        try:
            _undo(core, hold)
        finally:
            del call  # the traceback keeps this frame: see operations.py
        raise


async def _when_answered(core: Core, hold: DirectHold, handle: Handle, timeout: float | None, answering: Any) -> None:
    """The rest of an acquire on an engine that is waited for."""
    policy, direct = hold.policy, core.direct
    assert direct is not None
    try:
        answer: Answer
        try:
            reply = await answering
            answer = direct.shared_acquired(policy.mode, reply) if policy.at_engine else direct.acquired(reply)
            if answer.__class__ is int or answer.__class__ is Granted:
                if install_directly(core, hold, answer):
                    core.acquiring.running.pop(hold, None)
                    if core.closed:
                        core.acquisition_left(hold)
                    return
                answer = errors.late()
        except (RequestFailed, LockError) as error:
            answer = error
        rest = _go_on(core, hold, handle, timeout, answer)
    except BaseException:
        _undo(core, hold)
        raise
    try:
        await rest
    finally:
        del rest  # as in ``acquire``


def _go_on(
    core: Core, hold: DirectHold, handle: Handle, timeout: float | None, answer: Answer
) -> Coroutine[Any, Any, None]:
    """It takes more than one request, or fails: the rest of the acquire, from ``answer`` on."""
    key, acquisition = hold.policy.key, Acquisition(core, hold.policy, timeout, hold)
    rest = core.begin(acquisition, handle, answer)
    try:
        with core.lock:
            core.queue.move_in(key, hold, acquisition)
            if hold.suspected:
                acquisition.suspect(key, hold.broken_token)
            _end(core, hold)
    except BaseException:
        try:
            rest.close()  # it will never run: what it was to do is undone by the watchdog
        finally:
            del rest  # as in ``acquire``
        raise
    return rest


def _give_way(core: Core, hold: DirectHold, handle: Handle, timeout: float | None) -> Rest:
    """Another caller has taken the slot at this moment."""
    _end(core, hold)
    return Acquisition(core, hold.policy, timeout).start(handle)


def _end(core: Core, hold: DirectHold) -> None:
    """An acquisition has taken over, or nothing was asked for."""
    hold.handles.clear()
    core.acquiring.running.pop(hold, None)


def _undo(core: Core, hold: DirectHold) -> None:
    hold.give_up()
    core.acquisition_left(hold)
