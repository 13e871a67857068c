"""Everything that proves the product: one package, so that demo and benchmarks share its servers."""
