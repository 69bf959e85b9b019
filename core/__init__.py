"""Functions and types that all other packages use. Nothing here needs SQL, torch, Ray or HTTP."""
