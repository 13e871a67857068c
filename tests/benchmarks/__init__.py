"""Benchmarks: every peer in the same run, medians, CPU seconds per million rows; no timed tests."""
