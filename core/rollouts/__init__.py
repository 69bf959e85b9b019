"""Groups of rollouts as the Solver's methods see them: classes of answers, strategies, embeddings."""
