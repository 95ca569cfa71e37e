"""The algorithm of speculative decoding: numpy and the standard library only."""
