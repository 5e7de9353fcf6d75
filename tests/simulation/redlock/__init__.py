"""Redlock in the simulation: the shipped session on several servers, each with faults and a clock of its own."""
