"""Running it: requests in, events out; one loop owns every llama handle."""
