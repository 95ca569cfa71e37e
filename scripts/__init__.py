"""What contributors run. A package, so that the tests can import the parts of `bench_peers`."""
