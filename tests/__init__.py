"""Tests of localspec."""
