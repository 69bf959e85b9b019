"""What coevo's files and rows take, which are left over, and their removal: `coevo store du` and `coevo store gc`."""
