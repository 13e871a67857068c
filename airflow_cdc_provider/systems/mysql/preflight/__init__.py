"""Preflight: what is looked at before anything is read."""
