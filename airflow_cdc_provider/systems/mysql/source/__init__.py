"""The source: splits with their watermarks, and the log."""
