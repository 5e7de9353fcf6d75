"""Keywords and methods of other lock libraries: each is refused with what to write instead.

They cannot be ignored: ``lock(name, blocking=False)`` would wait, and ``release()`` on the lock could not tell which of
its leases is meant.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, NoReturn

from holdfast._config import parameters
from holdfast.errors import UsageError

#: Keywords of redis-py's Lock and of threading's, for ``lock()`` and for ``acquire()``.
_KEYWORDS: Final = {
    "blocking": "call lock.try_acquire() for one try, or lock.acquire() to wait",
    "blocking_timeout": "how long to wait is timeout=, here and in acquire(); how long a lease lives is ttl=",
    "sleep": "leave it out: waiters are woken, they do not poll",
    "thread_local": "leave it out: the lease is the handle, and any thread or task may release it",
    "raise_on_release_error": "leave it out, and catch holdfast.LockLost around the block",
    "lock_class": "leave it out: holdfast.compat.redis_py.Lock has the interface of redis-py's Lock",
    "token": "leave it out: each acquire makes an owner of its own (lease.owner) and a fencing token (lease.token)",
    "expire": "how long a lease lives without renewal is ttl=",
    "auto_renewal": "leases are renewed by default; renew=False turns it off",
}

#: Methods that other libraries have on the lock, and holdfast on the lease. Text in braces is for async locks only.
_METHODS: Final = {
    "release": "acquire() returns a lease: call {await }lease.release(), or use '{async }with lock:'",
    "extend": "leases are renewed while they are held; to make one longer call {await }lease.renew(ttl=…)",
    "reacquire": "leases are renewed while they are held; by hand: {await }lease.renew()",
    "owned": "ask the lease: lease.held",
}


def translation(keyword: str) -> str | None:
    """What to write instead of ``keyword``, if another library has it."""
    return _KEYWORDS.get(keyword)


def refuse_keywords(call: str, given: Mapping[str, Any], known: tuple[str, ...]) -> NoReturn:
    """Raise for keywords that ``call`` does not take: UsageError with the translation, or TypeError as Python does."""
    for keyword in given:
        if keyword in _KEYWORDS:
            raise UsageError(f"{call}() has no {keyword}=: {_KEYWORDS[keyword]}")
    keyword = next(iter(given))
    nearest = parameters.nearest(keyword, known)
    hint = f"; did you mean {nearest}=?" if nearest else ""
    raise TypeError(f"{call}() got an unexpected keyword argument {keyword!r}{hint}")


def missing_attribute(owner: object, attribute: str) -> AttributeError:
    """The error for an attribute that ``owner``, a lock, does not have; with the remedy if another library has it."""
    kind = type(owner).__name__
    text = f"{kind!r} object has no attribute {attribute!r}"
    if attribute in _METHODS:
        remedy = re.sub(r"\{(.*?)\}", r"\1" if hasattr(owner, "__aenter__") else "", _METHODS[attribute])
        text = f"{kind} has no {attribute}(): {remedy}"
    return AttributeError(text, name=attribute, obj=owner)
