"""Map follows."""
