"""Distributions of this checkout, built from a copy of what is tracked, and environments without the checkout."""

import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def tracked() -> list[str]:
    """Files of the checkout that are, or will be, under version control."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        check=True,
        timeout=60,
    )
    names = [name for name in listed.stdout.decode().split("\0") if name]
    return [name for name in names if (ROOT / name).is_file()]


def build(folder: Path) -> tuple[Path, Path]:
    """The wheel and the source distribution. No isolation: nothing is fetched."""
    source, out = folder / "source", folder / "out"
    for name in tracked():
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, source / name)
    out.mkdir()
    code = f"import setuptools.build_meta as b; b.build_sdist({str(out)!r}); b.build_wheel({str(out)!r})"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=source, capture_output=True, text=True, timeout=110, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return next(out.glob("*.whl")), next(out.glob("*.tar.gz"))


def environment(folder: Path, wheel: Path, *, fetch: bool) -> Path:
    """A new environment with the wheel. Its dependencies are fetched by pip, or those of this environment serve: by
    their folder alone, so that the checkout which is installed there for development is not found through it."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True, timeout=60)
    python = folder / "bin" / "python"
    words = [sys.executable, "-m", "pip", "--python", str(python), "install", "-q", "--disable-pip-version-check"]
    subprocess.run([*words, *([] if fetch else ["--no-deps", "--no-index"]), str(wheel)], check=True, timeout=600)
    if not fetch:
        here = next(Path(path) for path in sys.path if path.endswith("site-packages"))
        there = next((folder / "lib").glob("python*/site-packages"))
        (there / "dependencies.pth").write_text(f"{here}\n")
    return folder / "bin"
