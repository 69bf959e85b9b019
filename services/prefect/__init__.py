"""Prefect, which starts runs: requests to its REST API, and the flow runs that it knows. Nothing here knows FastAPI."""
