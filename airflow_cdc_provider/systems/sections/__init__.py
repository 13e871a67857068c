"""What all systems' sections of the pipeline file have in common; only the file loads it."""
