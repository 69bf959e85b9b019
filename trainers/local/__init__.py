"""The embedded trainer: GRPO in plain torch."""
