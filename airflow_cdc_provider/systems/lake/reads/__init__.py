"""Reading the tables of a lake as rows of changes: ranges of them, and streams."""
