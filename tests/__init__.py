"""Everything that proves the product, and the servers that demo and benchmarks share."""
