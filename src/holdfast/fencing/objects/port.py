"""All calls of obstore, for its sync and its async functions, and what its errors mean."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import obstore
from obstore import exceptions
from obstore.store import HTTPStore, LocalStore

from holdfast.errors import EngineRefused, EngineUnavailable, UsageError

if TYPE_CHECKING:
    from obstore.store import ObjectStore

_CONFLICT: Final = (exceptions.AlreadyExistsError, exceptions.PreconditionError)
_UNSUPPORTED: Final = (NotImplementedError, exceptions.NotSupportedError)
_REFUSED: Final = (
    exceptions.PermissionDeniedError,
    exceptions.UnauthenticatedError,
    exceptions.UnknownConfigurationKeyError,
    exceptions.InvalidPathError,
)
# All other errors of obstore: the request may or may not have arrived.
_UNAVAILABLE: Final = (exceptions.BaseError, OSError)


class Conflict(Exception):
    """Raised when the object is not the expected one. It may also be our own write, if obstore repeated a request whose
    first attempt had succeeded: read the object again to find out."""


class Found(NamedTuple):
    """An object's body, and its ETag and version for conditional writes, if the store gave them."""

    body: bytes
    version: dict[str, str]


class Port:
    """The store, by functions that block (``awaited=False``) or by coroutines. Both are awaited here."""

    def __init__(self, store: ObjectStore, *, awaited: bool) -> None:
        if isinstance(store, LocalStore | HTTPStore):
            raise UsageError(
                f"{type(store).__name__} has no conditional writes, so no fence is possible on it: use S3Store, "
                "GCSStore or AzureStore (MemoryStore in tests); for local files FileFence"
            )
        self._store = store
        self._awaited = awaited

    async def get(self, path: str) -> Found | None:
        try:
            result = await self._call("get", path)
            body = (await result.bytes_async()) if self._awaited else result.bytes()
        except FileNotFoundError:
            return None
        except _UNAVAILABLE as error:  # in the middle of the body
            raise _unavailable(path) from error
        version = {name: value for name in ("e_tag", "version") if (value := result.meta.get(name)) is not None}
        return Found(bytes(body), version)

    async def put(self, path: str, body: Any) -> None:
        """Write an object whose name is new."""
        await self._call("put", path, body)

    async def swap(self, path: str, body: bytes, expected: Found | None) -> None:
        """Write ``body`` if the object is still ``expected`` (None: not there), else Conflict."""
        if expected is not None and not expected.version:
            raise EngineRefused(f"the store gave neither an ETag nor a version for {path!r}: no fence is possible")
        await self._call("put", path, body, mode="create" if expected is None else expected.version)

    async def delete(self, path: str) -> None:
        try:
            await self._call("delete", path)
        except FileNotFoundError:
            pass

    async def list(self, prefix: str) -> list[str]:
        """The paths directly under ``prefix``."""
        listed = await self._call("list_with_delimiter", prefix)
        return [entry["path"] for entry in listed["objects"]]

    async def sleep(self, seconds: float) -> None:
        if self._awaited:
            await asyncio.sleep(seconds)
        else:
            time.sleep(seconds)  # noqa: ASYNC251  no event loop runs this

    async def _call(self, name: str, path: str, *arguments: Any, **keywords: Any) -> Any:
        try:
            if self._awaited:
                return await getattr(obstore, f"{name}_async")(self._store, path, *arguments, **keywords)
            return getattr(obstore, name)(self._store, path, *arguments, **keywords)
        except FileNotFoundError:
            raise
        except _CONFLICT as error:
            raise Conflict(path) from error
        except _UNSUPPORTED as error:
            raise UsageError(f"this store cannot carry a fence: it does not support {name!r} of {path!r}") from error
        except _REFUSED as error:
            raise EngineRefused(f"the object store refused {name!r} of {path!r}: check the credentials") from error
        except _UNAVAILABLE as error:
            raise _unavailable(path) from error


def _unavailable(path: str) -> EngineUnavailable:
    # Without the driver's text, which contains the URL, perhaps with a signature. The driver's error is the cause.
    return EngineUnavailable(f"the object store could not be reached, or failed, for {path!r}")
