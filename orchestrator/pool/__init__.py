"""The worker pool: which run's training has the GPUs or CPUs, and how a training waits for them."""
