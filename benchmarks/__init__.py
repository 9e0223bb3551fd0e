"""Benchmarks: ratios of two things measured in one process. Run with `python -m benchmarks`."""
