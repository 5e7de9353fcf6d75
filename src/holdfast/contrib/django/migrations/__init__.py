"""Migrations of the application ``holdfast``."""
