"""Looking at what a run has stored, without training: its matrix, replayed votes, groups from a file."""
