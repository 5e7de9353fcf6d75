"""The options of ``memory:``, for type checkers."""

from __future__ import annotations

from holdfast._config.common_options import CommonOptions


class MemoryOptions(CommonOptions, total=False):
    """The options of ``memory:``."""
