"""Reading a change log as rows of changes: its commits, ranges of them, and their columns."""
