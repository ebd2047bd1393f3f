"""The public verbs: one function for each command, and what it returns."""

import logging

logging.getLogger("zerolm").addHandler(logging.NullHandler())  # a program that uses it decides what is shown
