"""Targets: one file each, a ledger for all; rows and progress are committed together."""
