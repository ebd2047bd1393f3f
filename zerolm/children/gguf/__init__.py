"""Children as GGUF files, for llama.cpp and software based on it."""
