"""The Django application ``holdfast.contrib.django``: ``INSTALLED_APPS += ["holdfast.contrib.django"]``.

* ``models.py``: the table of :class:`holdfast.fencing.SqlFence` as a model;
* ``migrations/``: what creates it, with the same statement as ``SqlFence().ddl()``;
* ``apps.py``: the application's name.
"""
