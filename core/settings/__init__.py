"""A run's configuration: `config.py` has the two kinds of run, the other files their parts."""
