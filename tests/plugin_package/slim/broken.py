"""A module that cannot be imported."""

raise RuntimeError("this plug-in\nis broken")
