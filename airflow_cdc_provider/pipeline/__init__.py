"""The pipeline file: its model, what is derived from it, and the steps that run it."""
