"""Analyses that train nothing: a run's matrix, its stored votes replayed, and rollout groups from a file."""
