"""The application as Django knows it."""

from __future__ import annotations

from django.apps import AppConfig  # type: ignore[import-untyped]


class HoldfastConfig(AppConfig):  # type: ignore[misc]  # Django ships no types
    """The application. Its label, in ``migrate holdfast`` and in permissions, is ``holdfast``."""

    name = "holdfast.contrib.django"
    label = "holdfast"
    verbose_name = "Holdfast"
