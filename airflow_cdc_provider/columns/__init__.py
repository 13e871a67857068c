"""Columns, of no system: rows and changes as Arrow, and what is done with them."""
