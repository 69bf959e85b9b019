"""Grading: reading answers from texts, and comparing two answers within limits of time and memory."""
