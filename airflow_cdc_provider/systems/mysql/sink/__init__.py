"""The sink: splits, changes and the ledger, in one transaction each."""
