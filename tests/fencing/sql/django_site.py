"""A Django site with one database, in its own process: Django can be configured only once per process."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlsplit

import django  # type: ignore[import-untyped]
from django.conf import settings  # type: ignore[import-untyped]

from holdfast.fencing import SqlFence
from holdfast.fencing.rule import Lease
from tests.fencing.sql.stores import Store, Work


def configure(place: str) -> None:
    """``place`` is a SQLite file, or what follows ``postgresql://``."""
    database: dict[str, Any] = {"ENGINE": "django.db.backends.sqlite3", "NAME": place}
    if "@" in place:
        url = urlsplit(f"postgresql://{place}")
        database = {
            "ENGINE": "django.db.backends.postgresql", "NAME": url.path.lstrip("/"),
            "HOST": url.hostname, "PORT": url.port, "USER": url.username, "PASSWORD": url.password,
        }  # fmt: skip
    # The second is of a kind unknown to SqlFence; it is never connected to.
    other = {"ENGINE": "django.db.backends.dummy"}
    settings.configure(
        DATABASES={"default": database, "other": other},
        INSTALLED_APPS=["holdfast.contrib.django"],
        USE_TZ=True,
        DEFAULT_AUTO_FIELD="django.db.models.BigAutoField",
    )
    django.setup()


class DjangoWork(Work):
    async def check(
        self, resource: str, token: int | Lease, owner: str | None = None, fence: SqlFence | None = None
    ) -> None:
        (fence or SqlFence()).check(using="default", resource=resource, token=token, owner=owner)

    async def run(self, statement: str) -> list[tuple[Any, ...]]:
        from django.db import connection  # type: ignore[import-untyped]

        with connection.cursor() as cursor:
            cursor.execute(statement)
            return list(cursor.fetchall()) if cursor.description else []


class DjangoStore(Store):
    """Its process needs DJANGO_ALLOW_ASYNC_UNSAFE: the interface is async, and Django's calls block."""

    def __init__(self, place: str) -> None:
        super().__init__(place)
        configure(place)

    @asynccontextmanager
    async def begin(self) -> AsyncIterator[Work]:
        from django.db import transaction

        with transaction.atomic():
            yield DjangoWork()
