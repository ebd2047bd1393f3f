"""``python -m zerolm``."""

import sys

from zerolm.cli import main

if __name__ == "__main__":
    sys.exit(main())
