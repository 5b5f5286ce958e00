"""Writes the Python forms of `proto/` into `src/palyra/wire`. With ``--check`` it only compares.

The files are taken as if they lay under ``palyra/wire``, so that the generated modules import each other by the names
they have in the package.
"""

import subprocess
import sys
import tempfile
from importlib.resources import files
from pathlib import Path

TOP = Path(__file__).resolve().parent.parent
PROTO = TOP / "proto" / "palyra"
TARGET = TOP / "src" / "palyra" / "wire"


def generate(into: Path) -> None:
    names = sorted(f"palyra/wire/{path.relative_to(PROTO)}" for path in PROTO.rglob("*.proto"))
    subprocess.run(
        [
            sys.executable,
            "-m",
            "grpc_tools.protoc",
            f"--proto_path=palyra/wire={PROTO}",
            f"--proto_path={files('grpc_tools') / '_proto'}",
            f"--python_out={into}",
            f"--pyi_out={into}",
            f"--grpc_python_out={into}",
            *names,
        ],
        check=True,
    )
    wire = into / "palyra" / "wire"
    for folder in [path for path in wire.rglob("*") if path.is_dir()]:
        (folder / "__init__.py").touch()


def written(folder: Path) -> dict[str, bytes]:
    made = (path for path in folder.rglob("*.py*") if path.suffix in (".py", ".pyi") and path.parent != folder)
    return {str(path.relative_to(folder)): path.read_bytes() for path in made}


def main() -> int:
    with tempfile.TemporaryDirectory() as scratch:
        generate(Path(scratch))
        fresh = written(Path(scratch) / "palyra" / "wire")
    if "--check" in sys.argv[1:]:
        stale = sorted(name for name, data in fresh.items() if written(TARGET).get(name) != data)
        stale += sorted(set(written(TARGET)) - set(fresh))
        print("\n".join(f"not as generated: {name}" for name in stale))
        return 1 if stale else 0
    for name in set(written(TARGET)) - set(fresh):
        (TARGET / name).unlink()
    for name, data in fresh.items():
        path = TARGET / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return 0


if __name__ == "__main__":
    sys.exit(main())
