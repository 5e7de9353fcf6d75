"""The fence's table, for migrations, for Django's test runner and for looking at it."""

from __future__ import annotations

from django.db import models  # type: ignore[import-untyped]

from holdfast.fencing.sql.fence import DEFAULT_TABLE


class FenceRow(models.Model):  # type: ignore[misc]  # Django ships no types
    """The newest token that :class:`holdfast.fencing.SqlFence` admitted for one resource, and its owner.

    Do not change it: if a row is deleted or its token lowered, an old holder can write again.
    """

    resource = models.TextField(primary_key=True)
    token = models.BigIntegerField()
    owner = models.TextField(null=True)

    class Meta:
        db_table = DEFAULT_TABLE
        default_permissions = ("view",)

    def __str__(self) -> str:
        return f"{self.resource}: {self.token}"
