"""The hand-over of a lock from one process to the next, in worlds where much of it goes wrong."""
