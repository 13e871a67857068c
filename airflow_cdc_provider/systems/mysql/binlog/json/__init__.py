"""JSON in its binary form, and partial updates of it."""
