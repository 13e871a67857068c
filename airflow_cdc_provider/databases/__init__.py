"""SQL databases by their DSNs: those of the state, and catalogs of a lake."""
