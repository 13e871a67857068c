"""What runs on Spark: the snapshot job, the stream job and their session."""
