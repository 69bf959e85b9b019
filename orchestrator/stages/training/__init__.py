"""What the stages that train are made of: jobs, the way through the worker pool to a checkpoint, metrics, rollouts."""
