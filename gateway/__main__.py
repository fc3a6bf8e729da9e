"""`python -m gateway` is the command `skewgate`, where no script is installed. Decides nothing."""

import sys

from gateway.cli import main

if __name__ == "__main__":
    sys.exit(main())
