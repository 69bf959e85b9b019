"""What a run takes: memory, disk, tokens and hours. Formulas; `measured` has what finished runs took.

`shapes`: a model's parameters. `memory`: what lies in a GPU and on the disk. `work`: the answers. `estimate`: all.
"""
