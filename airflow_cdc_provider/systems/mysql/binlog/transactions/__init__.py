"""Transactions: events become batches of whole ones."""
