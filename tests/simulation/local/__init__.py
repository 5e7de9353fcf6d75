"""The queue inside a process: many callers of one client, of whom some overtake others."""
