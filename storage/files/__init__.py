"""What is stored beside SQL: checkpoints, the texts of rollouts, and the logs of runs."""
