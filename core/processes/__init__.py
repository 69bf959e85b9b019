"""Processes: who one is, how it imports what takes seconds, and where tests end it."""
