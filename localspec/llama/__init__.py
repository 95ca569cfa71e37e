"""The door to llama.cpp: the only package that imports llama_cpp."""
