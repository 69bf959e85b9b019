"""Computes a run's series from the store, raises alerts on them, and delivers the alerts."""
