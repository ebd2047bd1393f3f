"""Showing: sheets and charts, drawn for a page, a terminal and a notebook; no command is known here."""
