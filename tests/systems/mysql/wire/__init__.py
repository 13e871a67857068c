"""Rows as text, both ways."""
