"""Masters that die, are demoted or cut off: what holders are notified of, and what ``replicas=`` changes."""
