"""Elastic language models (ELM, arXiv 2510.27037): a supernet that grows, its search, and its hand-over."""
