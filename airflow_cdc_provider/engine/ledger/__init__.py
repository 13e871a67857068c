"""The ledger: what a sink has committed, decided once for all sinks."""
