"""The Challenger's side of the loop: which of its questions the Solver learns from."""
