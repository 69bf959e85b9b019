"""These tests are collected by `make containers` only, because they need root, Docker and half an hour."""

import os

collect_ignore = [] if "COEVO_CONTAINERS_COMPOSE_FILE" in os.environ else ["test_containers.py"]
