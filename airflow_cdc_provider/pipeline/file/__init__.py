"""The pipeline file: its model, its reading, its messages."""
