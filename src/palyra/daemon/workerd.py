"""``palyra-workerd``: a machine that runs leased calls for a daemon elsewhere."""

import sys


def main() -> None:
    from palyra.cli.main import run_as_program
    from palyra.cli.workerd import workerd

    sys.exit(run_as_program(workerd, "palyra-workerd", sys.argv[1:]))


if __name__ == "__main__":
    main()
