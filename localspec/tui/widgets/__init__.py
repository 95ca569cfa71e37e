"""One thing on the screen per module."""
