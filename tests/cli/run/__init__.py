"""``holdfast run`` as a user starts it: a process of its own. ``jobs.py`` starts and examines it."""
