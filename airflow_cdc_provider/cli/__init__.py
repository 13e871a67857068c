"""The same commands with and without a scheduler."""
