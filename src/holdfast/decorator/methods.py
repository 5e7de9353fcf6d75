"""Decorated functions in the body of a class.

Outside of classes a decorated function is a plain function with the attributes ``lock_for`` and ``skipped``. A bound
method shares the attributes of its function, so ``account.withdraw.lock_for(5)`` would not know ``account``. Therefore
a decorated method is a descriptor. It returns bound methods whose ``lock_for`` knows their object; everything else is
delegated to the function.
"""

from __future__ import annotations

from collections.abc import Callable
from types import FunctionType, MethodType
from typing import Any, Literal

Binding = Literal["instance", "class"]


def is_method(function: Callable[..., Any]) -> bool:
    """Whether ``function`` was defined in the body of a class, judged by its qualified name."""
    if not isinstance(function, FunctionType):
        return False
    outer = function.__qualname__.rpartition(".")[0]
    return bool(outer) and not outer.endswith("<locals>")


#: Every class defines these attributes, so ``__getattr__`` is not called for them.
_doc: Any = property(lambda self: self._function.__doc__)
_module: Any = property(lambda self: self._function.__module__)
_annotations: Any = property(lambda self: self._function.__annotations__)
#: For ``isinstance``: pydantic treats everything in the body of a model that is not a function as a field.
_class: Any = property(lambda self: FunctionType)


class _FunctionLike:
    """Delegates all attributes to the function: its name, its code. ``inspect`` treats it as a function."""

    __slots__ = ("__weakref__", "_function")
    __class__ = _class

    def __getattr__(self, name: str) -> Any:
        if name == "_function":  # not set yet, as during a copy
            raise AttributeError(name)
        return getattr(self._function, name)

    def __repr__(self) -> str:
        return repr(self._function)


class LockedMethod(_FunctionLike):
    """A decorated function in a class."""

    __slots__ = ("_binding",)
    __doc__, __module__, __annotations__ = _doc, _module, _annotations

    def __init__(self, function: Any, binding: Binding = "instance") -> None:
        self._function = function
        self._binding = binding

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        if self._binding == "class":
            instance = type(instance) if owner is None else owner
        elif instance is None:
            return self._function
        return BoundMethod(self._function, instance)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._function(*args, **kwargs)

    def __setattr__(self, name: str, value: Any) -> None:
        if name in ("_function", "_binding"):
            super().__setattr__(name, value)
        else:
            setattr(self._function, name, value)  # set by another decorator, such as abstractmethod


class BoundMethod(_FunctionLike):
    """A bound method whose ``lock_for`` knows its object.

    ``__func__`` is the function itself, which lives as long as the class: ``weakref.WeakMethod``, which the signals of
    Django and others use, refers to it.
    """

    __slots__ = ("__self__",)
    __doc__, __module__, __annotations__ = _doc, _module, _annotations
    __class__ = property(lambda self: MethodType)  # for inspect.ismethod

    def __init__(self, function: Any, instance: object) -> None:
        self._function = function
        self.__self__ = instance

    @property
    def __func__(self) -> Any:
        return self._function

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._function(self.__self__, *args, **kwargs)

    def lock_for(self, *args: Any, **kwargs: Any) -> Any:
        return self._function.lock_for(self.__self__, *args, **kwargs)

    def __repr__(self) -> str:
        return repr(MethodType(self._function, self.__self__))

    def __reduce_ex__(self, protocol: Any) -> Any:
        return getattr, (self.__self__, self._function.__name__)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, MethodType) and self._function is other.__func__ and self.__self__ is other.__self__

    def __hash__(self) -> int:
        return hash((self._function, id(self.__self__)))
