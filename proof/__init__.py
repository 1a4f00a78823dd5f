"""A machine-checked proof of the lock: see docs/proof.md. `make proof` runs it."""
