"""Fine-tuning of encoders and decoders: classes of sequences, and spans that answer questions."""
