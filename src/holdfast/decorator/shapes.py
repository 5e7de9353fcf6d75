"""The types of decorated functions, for type checkers. At run time they are plain functions, or ``LockedMethod``."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Protocol, TypeVar, overload

if TYPE_CHECKING:
    from holdfast.aio import AsyncLock
    from holdfast.client import Lock

P = ParamSpec("P")
Q = ParamSpec("Q")
S = TypeVar("S")
R_co = TypeVar("R_co", covariant=True)
R = TypeVar("R")
T = TypeVar("T")
A = TypeVar("A", bound=AsyncIterator[Any])
I = TypeVar("I", bound=Iterator[Any])  # noqa: E741
D = TypeVar("D")
D_co = TypeVar("D_co", covariant=True)
L_co = TypeVar("L_co", covariant=True)
#: A template, or a callable over the same arguments; None: module.qualname.
Key = str | Callable[..., Any] | None


class LockedFunction(Protocol[P, R_co, L_co]):
    """A function that holds a lock while it runs; ``L_co`` is Lock or AsyncLock.

    It guarantees what the lock guarantees: after a loss the body may still run for a moment, see ``current_lease``.
    """

    __name__: str
    __qualname__: str

    @property
    def __wrapped__(self) -> Callable[P, Any]:
        """The function itself, without the lock."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co:
        """Call the function with its lock held. ``on_busy`` says what happens if the lock is busy."""

    def lock_for(self, *args: P.args, **kwargs: P.kwargs) -> L_co:
        """The lock of a call with these arguments, with the same policy: to inspect it, or to hold it for longer.
        No I/O. ``at_least`` is not part of the lock."""

    def skipped(self) -> int:
        """How many calls were skipped in this process because the lock was busy (``on_busy="skip"``)."""

    @overload
    def __get__(self, instance: None, owner: Any = None) -> LockedFunction[P, R_co, L_co]: ...
    @overload
    def __get__(
        self: LockedFunction[Concatenate[S, Q], R, L_co], instance: S, owner: Any = None
    ) -> LockedFunction[Q, R, L_co]: ...


class SyncDecorator(Protocol):
    """What ``client.locked(...)`` of a sync client returns."""

    def __call__(self, function: Callable[P, R], /) -> LockedFunction[P, R, Lock]: ...


class AsyncDecorator(Protocol):
    """What ``client.locked(...)`` of an async client returns."""

    def __call__(self, function: Callable[P, R], /) -> LockedFunction[P, R, AsyncLock]: ...


class DefaultDecorator(Protocol):
    """What ``holdfast.locked(...)`` returns: the function decides whether the client is sync or async."""

    @overload
    def __call__(  # type: ignore[overload-overlap]
        self, function: Callable[P, Coroutine[Any, Any, T]], /
    ) -> LockedFunction[P, Coroutine[Any, Any, T], AsyncLock]: ...
    @overload
    def __call__(  # type: ignore[overload-overlap]
        self, function: Callable[P, A], /
    ) -> LockedFunction[P, A, AsyncLock]: ...
    @overload
    def __call__(self, function: Callable[P, R], /) -> LockedFunction[P, R, Lock]: ...


class SyncSkippingDecorator(Protocol[D_co]):
    """With ``on_busy="skip"``: a call returns what the function returns, or the default. A generator yields nothing."""

    @overload
    def __call__(self, function: Callable[P, I], /) -> LockedFunction[P, I, Lock]: ...
    @overload
    def __call__(self, function: Callable[P, R], /) -> LockedFunction[P, R | D_co, Lock]: ...


class AsyncSkippingDecorator(Protocol[D_co]):
    """With ``on_busy="skip"``: an awaited call returns what the function returns, or the default."""

    @overload
    def __call__(
        self, function: Callable[P, Coroutine[Any, Any, T]], /
    ) -> LockedFunction[P, Coroutine[Any, Any, T | D_co], AsyncLock]: ...
    @overload
    def __call__(self, function: Callable[P, A], /) -> LockedFunction[P, A, AsyncLock]: ...


class DefaultSkippingDecorator(Protocol[D_co]):
    """With ``on_busy="skip"``, of ``holdfast.locked``."""

    @overload
    def __call__(  # type: ignore[overload-overlap]
        self, function: Callable[P, Coroutine[Any, Any, T]], /
    ) -> LockedFunction[P, Coroutine[Any, Any, T | D_co], AsyncLock]: ...
    @overload
    def __call__(  # type: ignore[overload-overlap]
        self, function: Callable[P, A], /
    ) -> LockedFunction[P, A, AsyncLock]: ...
    @overload
    def __call__(self, function: Callable[P, I], /) -> LockedFunction[P, I, Lock]: ...
    @overload
    def __call__(self, function: Callable[P, R], /) -> LockedFunction[P, R | D_co, Lock]: ...
