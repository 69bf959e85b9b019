"""What `coevo up` starts on a machine, and where it keeps its things."""
