"""Names are data, secrets stay secret, and the least privilege is enough."""
