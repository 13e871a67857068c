"""Verify, as servers of MySQL's protocol do it: each adds up hashes of its own rows."""
