"""The work, whoever runs it."""
