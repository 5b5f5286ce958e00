"""A state directory with a file of each part."""

import sqlite3
from contextlib import closing
from pathlib import Path


def make_state(root: Path) -> Path:
    root.mkdir(mode=0o700)
    with closing(sqlite3.connect(root / "palyra.db")) as database:
        database.execute("PRAGMA journal_mode = WAL")
        database.execute("CREATE TABLE t (x)")
        database.execute("INSERT INTO t VALUES (1)")
        database.commit()
    for name in ("checkpoint.json", "signing.key", "signing.pub", "skills/artifacts/one", "workspace/a", "instances/b"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(name)
    return root
