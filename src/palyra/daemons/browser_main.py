"""``palyra-browserd``: Chromium sessions for agents, beside the palyrad of the same state directory."""

import sys


def main() -> None:
    from palyra.cli.browserd import browserd
    from palyra.cli.main import run_as_program

    sys.exit(run_as_program(browserd, "palyra-browserd", sys.argv[1:]))


if __name__ == "__main__":
    main()
