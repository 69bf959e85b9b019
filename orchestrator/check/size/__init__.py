"""What a preset needs: GPUs by stage, memory, disk, tokens and hours. Formulas; `measured` has what runs took.

`shapes`: a model's parameters. `layout`: who holds which GPU. `memory`: what lies in a GPU. `work`: the tokens.
"""
