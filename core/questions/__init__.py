"""Questions and their pseudo-labels: the prompts, the vote over answers, and which questions are kept."""
