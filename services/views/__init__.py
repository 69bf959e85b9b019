"""What people see of a run: its state and why, its series, its costs, and the time that is left."""
