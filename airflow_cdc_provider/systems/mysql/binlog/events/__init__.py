"""Events: their frames, kinds, checksums, and those without rows."""
