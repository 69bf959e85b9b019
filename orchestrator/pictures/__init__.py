"""Pictures for papers and slides: the curves of several runs or models."""
