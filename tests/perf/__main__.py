"""``python -m perf [NAME …]``: the same as ``palyra bench``, for those who work on a benchmark."""

import sys

from palyra.cli.main import run

if __name__ == "__main__":
    sys.exit(run(["bench", *sys.argv[1:]]))
