"""What trains a role: the jobs, their rewards and their schedule, which both trainers share."""
