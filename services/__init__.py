"""The services around a run: inference, oracles, figures and alerts, the REST API and the dashboard."""
