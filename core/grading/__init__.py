"""Whether an answer is right: reading it, and comparing it with another within limits of time and memory."""
