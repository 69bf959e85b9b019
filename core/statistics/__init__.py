"""All figures and their intervals: shares, accuracies, audits, changes over time, and the signals of the guard."""
