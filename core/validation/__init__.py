"""Values that come from outside: the bounds of each, and what is wrong with one, in a sentence."""
