"""The Ray Serve application whose engine is vLLM: it swaps checkpoints in place and bounds the entropy of tokens."""
