"""The tiny world of arithmetic questions, and the small models that the demo and the experiments start from."""
