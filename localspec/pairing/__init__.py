"""Which models make a pair: what a name stands for, who can draft for a target, and how fast that is."""
