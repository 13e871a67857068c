"""One picture of a pipeline's state, as lines and as plain values."""
