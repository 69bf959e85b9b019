"""Sampling from the models: the client that asks, and the Ray Serve applications that answer."""
