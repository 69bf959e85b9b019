"""The Ray Serve applications of a run, and which checkpoint each of them holds."""
