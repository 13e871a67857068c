"""The snapshot: splits planned, handed out, read and published."""
