"""The pipeline file and what is derived from it."""
