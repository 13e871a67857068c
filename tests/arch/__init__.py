"""Which room may load what."""
