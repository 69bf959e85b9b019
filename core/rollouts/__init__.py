"""What the Solver's methods know of a group of rollouts: classes of answers, strategies, embeddings."""
