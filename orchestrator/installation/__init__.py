"""The services that `coevo up` starts on a machine, and the folder that keeps their files."""
