"""Training on ``transformers.Trainer``: losses, teachers, runs that resume, and labels from training."""
