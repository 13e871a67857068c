"""A server: its connection, what it can do, its tables and errors."""
