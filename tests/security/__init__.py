"""Names are data, secrets stay secret, and least privilege suffices."""
