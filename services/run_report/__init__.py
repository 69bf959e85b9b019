"""What can be said of a run: its figures with their intervals, as JSON and as a table, and its result in sentences."""
