"""What coevo's files and rows take, which are left over, and their removal and archives: `coevo du`, `gc`, `backup`."""
