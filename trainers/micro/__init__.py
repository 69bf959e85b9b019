"""The tiny worlds of generated questions, and the small models that the demo and the experiments start from."""
