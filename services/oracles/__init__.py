"""Who says whether a pseudo-label is right: a program, an LLM judge, people."""
