"""``holdfast run`` in a process of its own. ``jobs.py`` starts and examines it."""
