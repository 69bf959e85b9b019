"""What runs beside a run: inference, oracles, figures and alerts, the REST API and the dashboard."""
