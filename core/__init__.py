"""Functions and types that all others use: no SQL, no torch, no ray, no HTTP; a few helpers for files."""
