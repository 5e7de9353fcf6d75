"""The version, in the one place that packaging and users read; and what to tell pip."""

__version__ = "0.1.0"

#: The distribution. The name "holdfast" belongs to another project on PyPI, which has the same import name.
DISTRIBUTION = "holdfast-locks"
