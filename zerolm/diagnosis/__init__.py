"""Which runtimes open a checkpoint, and why others do not."""
