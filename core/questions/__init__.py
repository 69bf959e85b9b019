"""Questions and their pseudo-labels: what is asked, how answers vote, which questions are kept."""
