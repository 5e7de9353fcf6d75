"""Masters that die, are demoted or cut off: what a holder is told then, and what ``replicas=`` changes."""
