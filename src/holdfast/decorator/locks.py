"""The locks of one decorated function: which client, which name, or which names of a multi-lock.

A Lock is a name and a policy; making one costs about 6 µs, mostly for checks. Names recur, so recent locks are cached.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from holdfast.decorator.keys import Namer, SeveralNamer
from holdfast.decorator.options import Plan, check_lasting

#: The size of the cache of each decorated function. When it is full, all are dropped: a function usually has either
#: few names or very many.
_MOST: Final = 256


class Locks:
    """Finds the lock of a call. Shared by all threads: each step is one atomic operation."""

    __slots__ = ("_client", "_kept", "_name", "_plan")

    def __init__(self, client: Callable[[], Any], name: Namer | SeveralNamer, plan: Plan) -> None:
        self._client = client
        self._name = name
        self._plan = plan
        #: The cached locks of one client. After ``configure`` there is another default client.
        self._kept: tuple[Any, dict[str | tuple[str, ...], Any]] = (None, {})

    def of(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """The lock of a call with these arguments, or its multi-lock. No I/O."""
        name = self._name(args, kwargs)
        client = self._client()
        owner, locks = self._kept
        if owner is not client:
            locks = {}
            self._kept = (client, locks)
        lock = locks.get(name)
        if lock is None:
            lock = self._make(client, name)
            if len(locks) >= _MOST:
                locks.clear()
            locks[name] = lock
        return lock

    def check(self, client: Any) -> None:
        """Raise now what the first call on ``client`` would raise: its engine may not support the policy."""
        self._make(client, "a")

    def _make(self, client: Any, name: str | tuple[str, ...]) -> Any:
        if isinstance(name, str):
            return self._make_one(client, name, self._plan.policy)
        # These two are about all of them together: one deadline, and one report of the first loss.
        of_all = {option: self._plan.policy.get(option) for option in ("timeout", "on_lost")}
        of_each = {option: value for option, value in self._plan.policy.items() if option not in of_all}
        return client.multi([self._make_one(client, each, of_each) for each in name], **of_all)

    def _make_one(self, client: Any, name: str, policy: Mapping[str, Any]) -> Any:
        lock = client.lock(name, **policy)
        check_lasting(self._plan.at_least, lock._policy.renew, lock._policy.ttl)
        return lock
