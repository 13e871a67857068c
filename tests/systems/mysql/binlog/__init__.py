"""The log's decoders."""
