"""What coevo's files and rows take, which of them are left over, and their removal: `coevo du`, `gc`, `runs delete`."""
