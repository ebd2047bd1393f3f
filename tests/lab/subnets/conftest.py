"""Each test has a cache of its own, and one thread."""

from own_caches import own_cache

__all__ = ["own_cache"]
