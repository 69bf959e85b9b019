"""Waiting for other processes: the clock, the pauses between attempts, and how many there are."""
