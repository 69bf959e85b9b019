"""Oracles, which say whether a pseudo-label is right: a program, known answers, an LLM judge, people."""
