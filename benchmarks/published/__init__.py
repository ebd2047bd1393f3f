"""The published benchmarks: where their authors have them, and how zerolm's own files are made of theirs."""
