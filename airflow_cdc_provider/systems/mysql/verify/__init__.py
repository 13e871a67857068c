"""Verify: both sides compared by ranges of the key."""
