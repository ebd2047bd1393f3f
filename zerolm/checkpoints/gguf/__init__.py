"""GGUF files as checkpoints: their header, their names, their types, and their tokenizer."""
