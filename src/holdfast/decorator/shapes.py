"""The types of decorated functions, for type checkers. At run time they are plain functions, or ``LockedMethod``."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar, overload

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
M_co = TypeVar("M_co", covariant=True)
#: A template, or a callable over the same arguments; None: module.qualname.
Key = str | Callable[..., Any] | None
#: Several of them: the function holds all these locks. (Not any sequence: a str is one, too.)
Keys = list[str] | list[Callable[..., Any]] | tuple[str | Callable[..., Any], ...] | set[str] | frozenset[str]


class LockedFunction(Protocol[P, R_co, L_co]):
    """A function that holds a lock while it runs; ``L_co`` is Lock or AsyncLock; with several keys, MultiLock or
    AsyncMultiLock.

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

    # A method through its class, a class method, a method through an instance; a static method takes none of these as
    # its first argument. mypy does not compare ``owner`` with S, and never binds a class method through its class.
    @overload
    def __get__(
        self: LockedFunction[Concatenate[S, Q], R, L_co], instance: None, owner: type[S]
    ) -> LockedFunction[P, R_co, L_co]: ...
    @overload
    def __get__(
        self: LockedFunction[Concatenate[S, Q], R, L_co], instance: Any, owner: S
    ) -> LockedFunction[Q, R, L_co]: ...
    @overload
    def __get__(
        self: LockedFunction[Concatenate[S, Q], R, L_co], instance: S, owner: Any = None
    ) -> LockedFunction[Q, R, L_co]: ...
    @overload
    def __get__(self, instance: Any, owner: Any = None) -> LockedFunction[P, R_co, L_co]: ...


class SyncDecorator(Protocol[L_co]):
    """What ``client.locked(...)`` of a sync client returns."""

    def __call__(self, function: Callable[P, R], /) -> LockedFunction[P, R, L_co]: ...


class AsyncDecorator(Protocol[L_co]):
    """What ``client.locked(...)`` of an async client returns."""

    def __call__(self, function: Callable[P, R], /) -> LockedFunction[P, R, L_co]: ...


class DefaultDecorator(Protocol[L_co, M_co]):
    """What ``holdfast.locked(...)`` returns: the function decides whether the client is sync or async, and so whether
    its lock is an ``L_co`` or an ``M_co``."""

    @overload
    def __call__(
        self, function: Callable[P, Coroutine[Any, Any, T]], /
    ) -> LockedFunction[P, Coroutine[Any, Any, T], M_co]: ...
    @overload
    def __call__(self, function: Callable[P, A], /) -> LockedFunction[P, A, M_co]: ...
    @overload
    def __call__(self, function: Callable[P, R], /) -> LockedFunction[P, R, L_co]: ...


class SyncSkippingDecorator(Protocol[D_co, L_co]):
    """With ``on_busy="skip"``: a call returns what the function returns, or the default. A generator yields nothing."""

    @overload
    def __call__(self, function: Callable[P, I], /) -> LockedFunction[P, I, L_co]: ...
    @overload
    def __call__(self, function: Callable[P, R], /) -> LockedFunction[P, R | D_co, L_co]: ...


class AsyncSkippingDecorator(Protocol[D_co, L_co]):
    """With ``on_busy="skip"``: an awaited call returns what the function returns, or the default."""

    @overload
    def __call__(
        self, function: Callable[P, Coroutine[Any, Any, T]], /
    ) -> LockedFunction[P, Coroutine[Any, Any, T | D_co], L_co]: ...
    @overload
    def __call__(self, function: Callable[P, A], /) -> LockedFunction[P, A, L_co]: ...


class DefaultSkippingDecorator(Protocol[D_co, L_co, M_co]):
    """With ``on_busy="skip"``, of ``holdfast.locked``."""

    @overload
    def __call__(
        self, function: Callable[P, Coroutine[Any, Any, T]], /
    ) -> LockedFunction[P, Coroutine[Any, Any, T | D_co], M_co]: ...
    @overload
    def __call__(self, function: Callable[P, A], /) -> LockedFunction[P, A, M_co]: ...
    @overload
    def __call__(self, function: Callable[P, I], /) -> LockedFunction[P, I, L_co]: ...
    @overload
    def __call__(self, function: Callable[P, R], /) -> LockedFunction[P, R | D_co, L_co]: ...
