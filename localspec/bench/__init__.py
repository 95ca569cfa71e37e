"""Measuring: workloads and how a run of them is timed."""
