"""Benchmarks. Each prints ratios that were measured in one run; absolute figures hold for one machine only."""
