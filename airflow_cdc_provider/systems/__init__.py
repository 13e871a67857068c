"""One folder a system: what is read from and written to."""
