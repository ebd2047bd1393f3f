"""A package beside zerolm: scores with options, a space with its network, a proxy."""
