"""Analyses that train nothing: a run's stored votes replayed, and rollout groups from a file."""
