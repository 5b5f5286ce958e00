"""``palyrad``: the daemon as a service manager starts it. People use ``palyra up``, which is the same daemon."""

import logging
import os
import sys


def main() -> None:
    from palyra.cli.main import run

    logging.basicConfig(
        level=os.environ.get("PALYRA_LOG", "INFO").upper(), format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
    # Global options come before the command, as everywhere: `palyrad --state-dir DIR` is `palyra --state-dir DIR up`.
    sys.exit(run([*sys.argv[1:], "up"]))


if __name__ == "__main__":
    main()
