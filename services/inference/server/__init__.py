"""The Ray Serve application of the embedded engine, and what all applications share: their key, their checkpoint."""
