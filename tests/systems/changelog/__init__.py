"""Change logs, in folders of their own."""
