"""Columns, without a system."""
