"""Integrations with frameworks, one folder each. None is imported unless the application asks for it.

* ``django/``: the application ``holdfast.contrib.django``.
"""
