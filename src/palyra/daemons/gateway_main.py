"""``palyrad``: the daemon as a service manager starts it. People use ``palyra up``, which is the same daemon."""

import sys


def main() -> None:
    from palyra.cli.main import run

    # Global options come before the command, as everywhere: `palyrad --state-dir DIR` is `palyra --state-dir DIR up`.
    sys.exit(run([*sys.argv[1:], "up", "--as-service"]))


if __name__ == "__main__":
    main()
