"""`localspec serve`: an OpenAI-style endpoint, and the endpoints of llama.cpp that editors call."""
