"""One benchmark in a process of its own: ``python -m benchmarks.child MODULE FILE`` writes its rows into the file."""

import importlib
import json
import sys
from pathlib import Path

from benchmarks.bar import Bar


def main(module: str, file: str) -> None:
    rows = importlib.import_module(module).run()
    with_keys = [{**row, "bar": row["bar"].key if isinstance(row["bar"], Bar) else None} for row in rows]
    Path(file).write_text(json.dumps(with_keys), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
