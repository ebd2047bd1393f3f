"""The networks of the search spaces as plain modules: one file a family, and what families share."""
