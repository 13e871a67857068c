"""Names, statements, types."""
