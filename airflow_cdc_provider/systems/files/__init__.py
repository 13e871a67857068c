"""Stores of files, for systems whose tables or logs are files: one port, a form for each scheme."""
