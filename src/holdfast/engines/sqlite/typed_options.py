"""The options of ``sqlite:``, for type checkers."""

from __future__ import annotations

from holdfast._config.common_options import CommonOptions


class SqliteOptions(CommonOptions, total=False):
    """The options of ``sqlite:``."""
