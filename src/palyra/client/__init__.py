"""The Python client of the daemon's HTTP API."""
