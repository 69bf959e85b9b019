"""Compares runs and models: figures over seeds, differences to a baseline, and settings."""
