"""The SQL store, and on the disk checkpoints and the texts of rollouts."""
