"""A run's series, worked out from the store, and the alerts that are raised on them."""
