"""Sinks: their port, and what those commit whose transactions hold rows and ledger."""
