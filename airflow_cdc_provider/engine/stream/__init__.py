"""The stream: the log followed and applied, and the heartbeat."""
