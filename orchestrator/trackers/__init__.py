"""TensorBoard, W&B, MLflow and Trackio: each gets what the store has of a run, from a process of its own."""
