"""Real Redis (or Valkey) servers of each kind; `tests/servers.py` is the door to them."""
