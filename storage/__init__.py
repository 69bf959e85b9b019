"""The SQL store, and the files beside it: checkpoints and the texts of rollouts."""
