"""Every figure and its interval: shares, accuracies, audits, changes, and the signals of the guard."""
