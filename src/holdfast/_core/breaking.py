"""Taking a lock from its holder by force, and what a lost reply means for that."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final

from holdfast._core import names, operators
from holdfast._core.core import Core
from holdfast._core.grant import Grant
from holdfast.engines.base import RequestFailed
from holdfast.errors import EngineError, OutcomeUnknown

_log: Final = logging.getLogger("holdfast.operator")


async def break_(core: Core, name: str, token: int | None = None) -> bool:
    """See ``Client.break_``."""
    if token is not None:
        check_token(token)
    key = names.qualify(core.options.namespace, name)
    with core.lock:  # in one step: a grant that is not here yet is one that an acquire is about to get
        own = core.grants_on(key)  # what of it is still held when the answer comes was broken, or lost before
        if token is not None:
            own = [grant for grant in own if grant.has_token(token)]
            if not _pinned(core, key, own, token):
                return _not_broken(name, token)
    breaking = _Breaking(core, key, name, token)
    held = await breaking.run()
    if held:
        _broken(core, key, own, token)
    else:
        _suspect(core, key)  # free, or another's: if this client counts it as held, that is verified
    if core.reports is not None and (held or token is None):
        core.reports.broken(name, held)
    if token is None:
        _log.warning("lock %r was broken by force%s", name, "" if held else "; it was not held")
        return held
    if not held and not breaking.unresolved:
        return _not_broken(name, token)
    _log.warning("lock %r, held with token %d, was broken by force", name, token)
    return True


def check_token(token: int) -> int:
    """A fencing token, or the error that says what is wrong with it."""
    if isinstance(token, bool) or not isinstance(token, int):
        raise TypeError(f"token is a {type(token).__name__}: give the holder's token, an int, as inspect() shows it")
    if token < 0:
        raise ValueError(f"token is negative: {token}")
    return token


def _pinned(core: Core, key: str, own: Sequence[Grant], token: int) -> bool:
    """Whether ``token`` is still the present one of this client's own grants that have it; if so, it stays that.

    The engine does not see hand-overs inside a process: it would take the lock from the caller that has it by then. A
    grant whose answer is on its way to a caller may have the token, too. The caller holds the core's lock.
    """
    _suspect_acquires(core, key)
    for grant in own:
        if grant.hold is None or grant.hold.token != token:
            return False
        grant.stop_handovers()
    return True


def _broken(core: Core, key: str, own: list[Grant], token: int | None) -> None:
    """The engine has taken these away: they are lost, without asking it again.

    It may also have taken a grant whose answer was on its way to a caller. With ``token`` that is known, too; without,
    it is checked.
    """
    with core.lock:
        _suspect(core, key, token)
        if token is not None:
            own = [grant for grant in core.grants_on(key) if grant in own or grant.has_token(token)]
    for grant in own:
        core.lose_grant(grant, "broken")


def _suspect(core: Core, key: str, broken: int | None = None) -> None:
    """Have the watchdog verify that what is held under this name, or is about to be, is still this client's.

    Until then it is not handed over. ``broken``: a token that is known not to be.
    """
    with core.lock:
        for grant in core.grants_on(key):
            if grant.hold is not None:  # else it is on its way to a caller, which has still to draw its token
                grant.stop_handovers()
        _suspect_acquires(core, key, broken)
        core.watchdog.suspect(key)


def _suspect_acquires(core: Core, key: str, broken: int | None = None) -> None:
    """The same for what is about to be held only. The caller holds the core's lock."""
    for acquisition in core.acquiring.all():
        acquisition.suspect(key, broken)


def _not_broken(name: str, token: int) -> bool:
    _log.info("lock %r was not broken: it is not held with token %d", name, token)
    return False


class _Breaking:
    """One break, over several attempts."""

    def __init__(self, core: Core, key: str, name: str, token: int | None) -> None:
        self._core = core
        self._key = key
        self._name = name
        self._token = token
        #: An attempt with a token got no answer. The next one breaks that holder, or finds it gone: broken by this one,
        #: or ended by itself at that moment. Nothing tells these apart, and both are what the caller wanted.
        self.unresolved = False

    async def run(self) -> bool:
        try:
            return await operators.ask(self._core, self._attempt, self._name)
        except EngineError as error:
            if self.unresolved:
                raise self._outcome_unknown() from error
            raise

    async def _attempt(self, timeout: float) -> bool:
        try:
            return await self._core.session.break_(self._key, timeout, self._token)
        except RequestFailed as failure:
            if failure.may_have_happened:
                _suspect(self._core, self._key)
                if self._token is None:
                    # Asked again, it would take the lock from the next holder too.
                    raise self._outcome_unknown() from failure
                self.unresolved = True
            raise

    def _outcome_unknown(self) -> OutcomeUnknown:
        return OutcomeUnknown(
            f"lock {self._name!r}: no answer came, so it is unknown whether it was broken; inspect() shows its holder",
            operation="break_",
            name=self._name,
        )
