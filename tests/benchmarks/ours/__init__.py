"""Our own subjects."""
