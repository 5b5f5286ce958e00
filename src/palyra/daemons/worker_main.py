"""``palyra-workerd``: a machine that runs leased calls for a daemon elsewhere."""

import logging
import os
import sys


def main() -> None:
    from palyra.cli.main import run_as_program
    from palyra.cli.workerd import workerd

    logging.basicConfig(
        level=os.environ.get("PALYRA_LOG", "INFO").upper(), format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
    sys.exit(run_as_program(workerd, "palyra-workerd", sys.argv[1:]))


if __name__ == "__main__":
    main()
