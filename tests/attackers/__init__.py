"""Programs that attack coevo as another user of the machine. They are run by tests."""
