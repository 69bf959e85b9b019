"""A run's configuration: `config.py` has the two kinds of run, `parsing.py` reads them, the others are their parts."""
