"""The work, without Spark."""
