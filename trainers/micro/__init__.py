"""The tiny world of arithmetic questions, and the small model that the demo starts from."""
