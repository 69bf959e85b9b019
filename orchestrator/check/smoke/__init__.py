"""`coevo smoke`: the whole path of a preset in minutes, on the machine and with the model that it will run with."""
