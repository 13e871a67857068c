"""Bytes of the server become Arrow columns here; numpy and pyarrow, no I/O."""
