"""A chat over somebody else's server: the engine interface, spoken over HTTP."""
