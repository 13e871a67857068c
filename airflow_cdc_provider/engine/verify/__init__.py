"""Verify: source and sink compared both ways, whatever systems they are of."""
