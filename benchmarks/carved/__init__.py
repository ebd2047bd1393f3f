"""What carved models are measured with: the tables of ``carving.py``."""
