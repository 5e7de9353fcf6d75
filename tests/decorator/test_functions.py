"""Decorating functions, methods and callable objects, with and without parentheses."""

from __future__ import annotations

import contextlib
import functools
import gc
import inspect
import pickle
import threading
import typing
import weakref
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pydantic
import pytest

import holdfast
from holdfast import aio

SHARED = holdfast.connect("memory:decorated")


@SHARED.locked("{number}")
def module_level(number: int, *, text: str = "x") -> str:
    """Its docstring."""
    return f"{number}{text}"


class Account:
    def __init__(self, number: int) -> None:
        self.number = number

    @SHARED.locked("{self.number}:{amount}", prefix="A")
    def withdraw(self, amount: int) -> str:
        """Its docstring."""
        return current()

    @classmethod
    @SHARED.locked("{kind}")
    def class_below(cls, kind: str) -> tuple[Any, str]:
        return cls, current()

    @SHARED.locked("{kind}")
    @classmethod
    def class_above(cls, kind: str) -> tuple[Any, str]:
        return cls, current()

    @staticmethod
    @SHARED.locked("{kind}")
    def static_below(kind: str) -> str:
        return current()

    @SHARED.locked("{kind}")
    @staticmethod
    def static_above(kind: str) -> str:
        return current()

    @SHARED.locked
    def bare(self) -> str:
        return current()


class Savings(Account):
    @SHARED.locked("{self.number}:{amount}", prefix="S")
    def withdraw(self, amount: int) -> str:
        return current() + "/" + super().withdraw(amount)


def current() -> str:
    lease = holdfast.current_lease()
    assert lease is not None
    assert lease.held
    return lease.name


def test_call_holds_and_releases_the_lock(client: holdfast.Client, other: holdfast.Client) -> None:
    @client.locked("{n}", prefix="job")
    def work(n: int) -> list[str]:
        return [state.name for state in other.locks()]

    assert work(5) == ["job:5"]
    assert list(other.locks()) == []


def test_exception_propagates_and_the_lock_is_released(client: holdfast.Client, other: holdfast.Client) -> None:
    @client.locked("a")
    def work() -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        work()
    assert list(other.locks()) == []


def test_calls_of_different_threads_exclude_each_other(client: holdfast.Client) -> None:
    inside: list[int] = []
    most: list[int] = []

    @client.locked("a")
    def work(n: int) -> None:
        inside.append(n)
        most.append(len(inside))
        threading.Event().wait(0.001)
        inside.remove(n)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert most == [1] * 6


def test_recursive_function_re_enters_its_lock(client: holdfast.Client) -> None:
    @client.locked("a")
    def factorial(n: int) -> int:
        return 1 if n < 2 else n * factorial(n - 1)

    assert factorial(5) == 120
    assert list(client.locks()) == []


def test_loss_in_the_body_is_raised_at_its_end(client: holdfast.Client, other: holdfast.Client) -> None:
    @client.locked("a", ttl=0.2)
    def work() -> None:
        other.break_("a")
        lease = holdfast.current_lease()
        assert isinstance(lease, holdfast.Lease)
        assert lease.lost.wait(5)
        with pytest.raises(holdfast.LockLost):
            lease.check()

    with pytest.raises(holdfast.LockLost):
        work()


def test_methods_and_lock_for_use_the_bound_object() -> None:
    account = Account(7)
    assert account.withdraw(5) == "A:7:5"
    assert account.withdraw.lock_for(5).name == "A:7:5"
    assert Account.withdraw(account, 5) == "A:7:5"
    assert Account.withdraw.lock_for(account, amount=5).name == "A:7:5"
    assert Savings(8).withdraw(1) == "S:8:1/A:8:1"


def test_bound_methods_have_the_attributes_of_plain_ones() -> None:
    account = Account(7)
    method: Any = account.withdraw
    assert inspect.ismethod(method)
    assert method.__self__ is account
    assert method == account.withdraw
    assert hash(method) == hash(account.withdraw)
    assert method != Account(7).withdraw
    assert list(inspect.signature(method).parameters) == ["amount"]
    assert method.__name__ == "withdraw"
    assert method.__doc__ == "Its docstring."
    function: Any = Account.withdraw
    assert inspect.isfunction(function)
    assert method.__func__ is function
    assert pickle.loads(pickle.dumps(method)).__func__ is function


def test_weak_reference_to_a_bound_method_lives_as_long_as_its_object() -> None:
    """Django's signals hold receivers weakly: a receiver that is collected immediately is never called, silently."""
    account = Account(7)
    method: Any = weakref.WeakMethod(account.withdraw)
    gc.collect()
    assert method()(5) == "A:7:5"
    assert method().lock_for(5).name == "A:7:5"
    del account
    gc.collect()
    assert method() is None


def test_class_and_static_methods_work_in_either_decorator_order() -> None:
    where: Any  # mypy binds a descriptor in a classmethod or staticmethod as if it were in neither
    for where in (Account, Savings, Savings(1)):
        kind = where if isinstance(where, type) else type(where)
        assert where.class_below("k") == (kind, "k")
        assert where.class_above("k") == (kind, "k")
        assert where.class_above.lock_for("k").name == "k"
        assert where.static_below("k") == "k"
        assert where.static_above("k") == "k"
        assert where.static_above.lock_for("k").name == "k"
        assert where.static_below.lock_for("k").name == "k"


def test_key_without_parentheses_is_the_function_name() -> None:
    @SHARED.locked
    def bare() -> str:
        return current()

    @SHARED.locked()
    def empty() -> str:
        return current()

    assert bare() == f"{__name__}.{bare.__qualname__}"
    assert empty() == f"{__name__}.{empty.__qualname__}"
    assert Account(1).bare() == f"{__name__}.Account.bare"


def test_single_named_function_is_refused_as_ambiguous(client: holdfast.Client) -> None:
    def key(n: int) -> int:
        return n

    with pytest.raises(holdfast.UsageError, match=r"locked\(key=key\) .* locked\(\)\(key\)"):
        client.locked(key)
    with pytest.raises(holdfast.UsageError, match="may mean two things"):
        client.locked(current)

    @client.locked(key=key)
    def by_keyword(n: int) -> str:
        return current()

    @client.locked(key, prefix="p")
    def beside_options(n: int) -> str:
        return current()

    assert by_keyword(3) == "3"
    assert beside_options(3) == "p:3"
    assert client.locked()(key)(3) == 3


def test_key_given_twice_is_refused(client: holdfast.Client) -> None:
    with pytest.raises(holdfast.UsageError, match="given twice"):
        client.locked("a", key="b")


def test_function_metadata_is_kept() -> None:
    assert module_level.__name__ == "module_level"
    assert module_level.__doc__ == "Its docstring."
    assert module_level.__wrapped__(1) == "1x"
    assert str(inspect.signature(module_level)) == "(number: 'int', *, text: 'str' = 'x') -> 'str'"
    function: Any = module_level
    assert inspect.isfunction(function)
    assert pickle.loads(pickle.dumps(function)) is function


def test_wrapper_is_of_the_same_kind_as_the_function(client: holdfast.Client) -> None:
    """FastAPI, Celery, pytest and others inspect it."""
    alocks = aio.connect("memory:")

    @alocks.locked
    async def coroutine() -> None: ...

    @alocks.locked
    async def async_generator() -> AsyncIterator[int]:
        yield 1

    @client.locked
    def generator() -> Iterator[int]:
        yield 1

    class Service:
        @alocks.locked("{n}")
        async def method(self, n: int) -> int:
            return n

        @client.locked("{n}")
        def steps(self, n: int) -> Iterator[int]:
            yield n

    assert inspect.iscoroutinefunction(coroutine)
    assert inspect.isasyncgenfunction(async_generator)
    assert inspect.isgeneratorfunction(generator)
    assert not inspect.iscoroutinefunction(module_level)
    for place in (Service, Service(), Service.__dict__["method"]):
        assert inspect.iscoroutinefunction(getattr(place, "method", place))
    assert inspect.isgeneratorfunction(Service().steps)
    assert not inspect.isgeneratorfunction(Service().method)


def test_partials_and_callable_objects_use_their_own_signature(client: holdfast.Client) -> None:
    def work(a: int, b: int) -> str:
        return f"{current()}={a + b}"

    class Job:
        def __call__(self, n: int) -> str:
            return current()

    assert client.locked("{b}")(functools.partial(work, 1))(2) == "2=3"
    assert client.locked("{n}")(Job())(4) == "4"
    assert client.locked("{n}")(Job())(n=4) == "4"
    for thing in (functools.partial(work, 1), Job()):
        with pytest.raises(holdfast.UsageError, match="has no name of its own"):
            client.locked()(thing)
    taken: Any = client.locked(functools.partial(work, 1))
    with pytest.raises(holdfast.UsageError, match="for the key; to lock it, write"):
        taken()


def test_async_callable_object_is_async(client: holdfast.Client) -> None:
    class Job:
        async def __call__(self) -> None: ...

    with pytest.raises(holdfast.UsageError, match="this client is sync"):
        client.locked("a")(Job())
    assert inspect.iscoroutinefunction(aio.connect("memory:").locked("a")(Job()))


@pytest.mark.parametrize("thing", [5, "text", None, property()], ids=lambda thing: type(thing).__name__)
def test_non_function_is_refused(client: holdfast.Client, thing: Any) -> None:
    with pytest.raises(holdfast.UsageError, match="decorates a function"):
        client.locked("a")(thing)


def test_class_is_refused(client: holdfast.Client) -> None:
    with pytest.raises(holdfast.UsageError, match="decorate its methods"):
        client.locked("a")(Account)


def test_other_decorators_above_and_below_work(client: holdfast.Client) -> None:
    def passing(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            return function(*args, **kwargs)

        return wrapper

    @client.locked("{n}", prefix="outer")
    @passing
    @client.locked("{n}", prefix="inner")
    def both(n: int) -> list[str]:
        return sorted(state.name for state in client.locks())

    class Kind(ABC):
        @abstractmethod
        @client.locked("{self.id}")
        def must(self) -> None: ...

        @property
        @client.locked("a")
        def value(self) -> str:
            return current()

        @passing
        @client.locked("{n}")
        def above(self, n: int) -> str:
            return current()

        @client.locked("{n}", prefix="1")
        @client.locked("{n}", prefix="2")
        def twice(self, n: int) -> str:
            return current()

    class Real(Kind):
        def must(self) -> None: ...  # type: ignore[override]  # it has no lock

    assert both(1) == ["inner:1", "outer:1"]
    assert inspect.isabstract(Kind)
    assert Real().value == "a"
    assert Real().above(3) == "3"
    assert Real().twice(3) == "2:3"


def test_sync_and_async_do_not_mix(client: holdfast.Client) -> None:
    alocks = aio.connect("memory:")

    async def coroutine() -> None: ...

    async def async_generator() -> AsyncIterator[int]:
        yield 1

    def function() -> None: ...

    def generator() -> Iterator[int]:
        yield 1

    wrong: Any
    for wrong in (coroutine, async_generator):
        with pytest.raises(holdfast.UsageError, match="this client is sync, and the function is async"):
            client.locked("a")(wrong)
    for wrong in (function, generator):
        with pytest.raises(holdfast.UsageError, match="this client is async, and the function is not"):
            alocks.locked("a")(wrong)


@pytest.mark.parametrize(
    "options, error, why",
    [
        ({"tiemout": 5}, holdfast.UsageError, "did you mean 'timeout'"),
        ({"on_busy": "ignore"}, holdfast.UsageError, "'wait', 'skip' or 'raise'"),
        ({"default": 5}, holdfast.UsageError, "none is skipped"),
        ({"timeout": -1}, ValueError, "timeout"),
        ({"ttl": 0}, ValueError, "ttl"),
        ({"fair": "yes"}, TypeError, "fair"),
        ({"renew": 1}, TypeError, "renew"),
        ({"reentrant": None}, TypeError, "reentrant"),
        ({"replicas": True}, TypeError, "replicas"),
        ({"on_lost": 5}, TypeError, "on_lost"),
        ({"at_least": "long"}, ValueError, "at_least"),
        ({"at_least": 5, "max_hold": 5}, holdfast.UsageError, "not shorter than max_hold"),
        ({"at_least": 5, "ttl": 1, "renew": False}, holdfast.UsageError, "is longer than ttl"),
        ({"replicas": 1}, holdfast.UsageError, "no replicas"),
        ({"require": {"cross_host"}}, holdfast.UsageError, "cross_host"),
    ],
    ids=str,
)
def test_wrong_options_are_refused_when_decorating(
    client: holdfast.Client, options: Any, error: type[Exception], why: str
) -> None:
    with pytest.raises(error, match=why):
        client.locked("a", **options)(lambda: None)


@pytest.mark.parametrize("options", [{}, {"at_least": 0.01}], ids=["plain", "with options"])
def test_plain_function_returning_a_coroutine_is_refused_at_the_call(client: holdfast.Client, options: Any) -> None:
    """The inner decorator hides the coroutine: its body would run after the release of the lock."""
    ran = []

    def hiding(function: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *args: function(*args)

    async def body() -> None:
        ran.append(1)

    work = client.locked("a", **options)(hiding(body))
    with pytest.raises(holdfast.UsageError, match="returned a coroutine, which would run without the lock"):
        work()
    assert not ran


def test_context_manager_function_is_refused_when_decorating(client: holdfast.Client) -> None:
    """It returns before its block begins. Below the other decorator it is a generator and holds the lock."""
    makers: tuple[Any, ...] = (contextlib.contextmanager, contextlib.asynccontextmanager)
    for make in makers:
        with pytest.raises(holdfast.UsageError, match="put locked\\(\\) below @contextmanager"):
            client.locked("a")(make(lambda: None))

    @contextlib.contextmanager
    @client.locked("a")
    def block() -> Iterator[str]:
        yield current()

    with block() as name:
        assert name == "a"
        assert client.inspect("a").holders


def test_methods_of_a_pydantic_model_can_be_decorated(client: holdfast.Client) -> None:
    class Order(pydantic.BaseModel):
        id: int

        @client.locked("{self.id}")
        def ship(self) -> str:
            return current()

        @client.locked("count")
        @staticmethod
        def count() -> str:
            return current()

    assert Order(id=7).ship() == "7"
    assert Order(id=7).ship.lock_for().name == "7"
    assert Order.count() == "count"
    assert set(Order.model_fields) == {"id"}


def test_method_annotations_are_those_of_the_function() -> None:
    """Other decorators read and copy them."""
    hints = {"amount": int, "return": str}
    for method in (Account.withdraw, Account(1).withdraw, vars(Account)["withdraw"]):
        assert typing.get_type_hints(method) == hints
        assert set(method.__annotations__) == set(hints)
