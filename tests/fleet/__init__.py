"""Real Redis (or Valkey) servers of each kind. Tests import them from `tests/servers.py`."""
