"""`coevo check PRESET --run`: a preset's whole path in minutes, on the machine and with the model that it will have."""
