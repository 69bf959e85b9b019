"""Evaluations: which models can be evaluated, and how they are asked, graded and stored."""
