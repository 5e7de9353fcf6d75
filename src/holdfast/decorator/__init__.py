"""``locked``: a decorator. Each call of the function holds a lock that is named by the call's arguments.

Read ``decorate.py`` first: what happens when decorating. Then, in the order of a call:

* ``keys.py``: from arguments to a name; ``template.py`` is the grammar, ``values.py`` the values that may be part of a
  name, ``fields.py`` the check against annotations, ``nearest.py`` the hint in its errors
* ``locks.py``: from a name to a Lock; ``options.py``: its policy
* ``wrapping.py``: the wrapper for each kind of function; ``generators.py``, ``async_generators.py``: the steps of
  generators
* ``methods.py``: functions in classes; ``shapes.py``: the types that users see

This package imports no engine, driver or event loop, so that decorating is cheap.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Literal, overload

from holdfast import default_clients
from holdfast.decorator import decorate
from holdfast.decorator.shapes import (
    A,
    D,
    DefaultDecorator,
    DefaultSkippingDecorator,
    Key,
    Keys,
    LockedFunction,
    P,
    R,
    T,
)

if TYPE_CHECKING:
    from typing import Unpack

    from holdfast.aio import AsyncLock
    from holdfast.client import Lock
    from holdfast.decorator.options import LockedOptions, WaitOrRaise
    from holdfast.primitives.aio.multi import AsyncMultiLock
    from holdfast.primitives.multi import MultiLock

__all__ = ["LockedFunction", "locked"]


@overload
def locked(  # type: ignore[overload-overlap]
    function: Callable[P, Coroutine[Any, Any, T]], /
) -> LockedFunction[P, Coroutine[Any, Any, T], AsyncLock]: ...
@overload
def locked(function: Callable[P, A], /) -> LockedFunction[P, A, AsyncLock]: ...  # type: ignore[overload-overlap]
@overload
def locked(function: Callable[P, R], /) -> LockedFunction[P, R, Lock]: ...  # type: ignore[overload-overlap]
@overload
def locked(
    template: Key = None, /, *, on_busy: Literal["skip"], default: None = None, **options: Unpack[LockedOptions]
) -> DefaultSkippingDecorator[None, Lock, AsyncLock]: ...
@overload
def locked(
    template: Key = None, /, *, on_busy: Literal["skip"], default: D, **options: Unpack[LockedOptions]
) -> DefaultSkippingDecorator[D, Lock, AsyncLock]: ...
@overload
def locked(
    template: Key = None, /, *, on_busy: WaitOrRaise = "wait", **options: Unpack[LockedOptions]
) -> DefaultDecorator[Lock, AsyncLock]: ...
@overload
def locked(
    templates: Keys, /, *, on_busy: Literal["skip"], default: None = None, **options: Unpack[LockedOptions]
) -> DefaultSkippingDecorator[None, MultiLock, AsyncMultiLock]: ...
@overload
def locked(
    templates: Keys, /, *, on_busy: Literal["skip"], default: D, **options: Unpack[LockedOptions]
) -> DefaultSkippingDecorator[D, MultiLock, AsyncMultiLock]: ...
@overload
def locked(
    templates: Keys, /, *, on_busy: WaitOrRaise = "wait", **options: Unpack[LockedOptions]
) -> DefaultDecorator[MultiLock, AsyncMultiLock]: ...
def locked(
    template: Any = None, /, *, key: Any = None, on_busy: Any = "wait", default: Any = None, **options: Any
) -> Any:
    """Decorate a function so that each call holds a lock, by the default client: ``@holdfast.locked("{user.id}")``.

    As ``client.locked``, with the client that ``connect()`` without a URL returns: sync or async, as the function is,
    made at the first call and shared by all functions. A later ``configure()`` applies to calls that begin after it.
    """
    return decorate.locked(_default_client, None, template, key, on_busy, default, options)


def _default_client(is_async: bool) -> Callable[[], Any]:
    return default_clients.async_client if is_async else default_clients.sync_client
