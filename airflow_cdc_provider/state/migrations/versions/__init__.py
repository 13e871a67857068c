"""One file a migration; a released one never changes."""
