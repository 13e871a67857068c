"""Tables of each format: one port, and a committer for each library."""
