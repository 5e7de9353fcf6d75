"""Creates the fence's table with the statement of ``SqlFence().ddl()``."""

from __future__ import annotations

from typing import Any, ClassVar, get_args

from django.db import migrations, models  # type: ignore[import-untyped]

from holdfast.fencing.sql import SqlFence
from holdfast.fencing.sql.fence import DEFAULT_TABLE
from holdfast.fencing.sql.statements import Dialect


def create(apps: Any, editor: Any) -> None:
    # Other databases get no table: the application can be installed there, and only SqlFence is refused.
    if editor.connection.vendor in get_args(Dialect):
        editor.execute(SqlFence().ddl(editor.connection.vendor))


def drop(apps: Any, editor: Any) -> None:
    editor.execute(f"DROP TABLE IF EXISTS {editor.quote_name(DEFAULT_TABLE)}")


class Migration(migrations.Migration):  # type: ignore[misc]  # Django ships no types
    initial = True
    dependencies: ClassVar[list[tuple[str, str]]] = []
    operations: ClassVar[list[Any]] = [
        migrations.SeparateDatabaseAndState(
            # Not Django's own CREATE TABLE: it cannot give the key a collation on one database only.
            database_operations=[migrations.RunPython(create, drop)],
            state_operations=[
                migrations.CreateModel(
                    name="FenceRow",
                    fields=[
                        ("resource", models.TextField(primary_key=True, serialize=False)),
                        ("token", models.BigIntegerField()),
                        ("owner", models.TextField(null=True)),
                    ],
                    options={"db_table": DEFAULT_TABLE, "default_permissions": ("view",)},
                ),
            ],
        ),
    ]
