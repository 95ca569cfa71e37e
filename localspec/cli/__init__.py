"""The command line: one command per file, results on stdout, everything else on stderr."""
