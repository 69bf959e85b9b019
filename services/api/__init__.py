"""The REST API over the store; it starts and ends runs through Prefect."""
