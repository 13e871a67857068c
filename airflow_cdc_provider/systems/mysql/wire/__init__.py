"""The text protocol's rows as columns, and columns as text for statements."""
