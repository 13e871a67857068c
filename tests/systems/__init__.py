"""One folder a system."""
