"""A run's configuration: `config.py` has the two kinds of run, `parsing.py` reads them, the others are their parts.

The settings of a method, of the guard and of the alerts are beside what they set, in `core.methods` and
`core.statistics`.
"""
