"""The interface of all engines, and the embedded engine, which samples from any causal model of transformers."""
