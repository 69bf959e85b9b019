"""The measured claims, one file each: `coevo bench NAME`."""
