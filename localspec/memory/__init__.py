"""Will it fit: what memory there is, and what a model takes."""
