"""The checks of `coevo doctor`: whether this machine can run the services and, if one is named, a preset."""
