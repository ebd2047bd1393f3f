"""Showing: results as sheets and charts, drawn for a page, a terminal and a notebook. No command is known here."""
