"""The chat in a terminal. It draws what the engine reports and asks for the next reply; it generates nothing."""
