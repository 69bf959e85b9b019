"""Hostile input, by chance, for all that reads what strangers write: models, services, files, clients of the API."""
