"""The checks of this machine, and of what a preset needs on it, each within a deadline."""
