"""Compilers for skills. Each is a package of a public registry in a pinned version, fetched once into the user's cache.

Nothing is installed into the system, the environment of Palyra or its state directory. A compiler is the author's own
program on the author's machine: it is not sandboxed, and it sees the project as it is.
"""

import fcntl
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import msgspec

from palyra.errors import Failed, Unavailable
from palyra.skills.build.project import BuiltModules, Language, ModuleBuild
from palyra.skills.limits import MAX_MODULE_BYTES
from palyra.skills.package.supply_chain import Ingredient

_SECONDS_TO_INSTALL: Final = 600
_SECONDS_TO_COMPILE: Final = 600
_SHOWN_CHARS: Final = 4_000
_STACK_BYTES: Final = 64 * 1024
# What the runtime gives a skill at most.
_MEMORY_BYTES: Final = 64 * 1024 * 1024
_MEMORY_PAGES: Final = _MEMORY_BYTES // 65_536
CACHE_VARIABLE: Final = "PALYRA_TOOLCHAINS"


class ToolchainUnavailable(Unavailable):
    code = "skill.toolchain_unavailable"
    hint = "the compiler comes from its registry on first use: is this machine online, and are pip or npm there?"


class BuildFailed(Failed):
    code = "skill.build_failed"
    hint = "the compiler's own words say what is wrong"


class Package(msgspec.Struct, frozen=True, kw_only=True):
    """A compiler in its registry. ``kind`` says what of it ends up in a module: CycloneDX's word."""

    registry: str
    name: str
    version: str
    kind: str = "application"

    @property
    def folder(self) -> str:
        return f"{self.name}-{self.version}"

    @property
    def ingredient(self) -> Ingredient:
        purl = f"pkg:{self.registry}/{self.name}@{self.version}"
        return Ingredient(name=self.name, version=self.version, kind=self.kind, purl=purl)


ZIG: Final = Package(registry="pypi", name="ziglang", version="0.17.0")
ASSEMBLYSCRIPT: Final = Package(registry="npm", name="assemblyscript", version="0.28.20", kind="library")
COMPONENTIZE_PY: Final = Package(registry="pypi", name="componentize-py", version="0.25.1", kind="framework")
PACKAGES: Final = {
    Language.C: ZIG,
    Language.ASSEMBLYSCRIPT: ASSEMBLYSCRIPT,
    Language.PYTHON: COMPONENTIZE_PY,
}
_C_FLAGS: Final = (
    *("-target", "wasm32-freestanding", "-std=c11", "-Os", "-Wall", "-Wextra", "-Wno-unused-function", "-nostdlib"),
    *("-Wl,--no-entry", "-Wl,--strip-all", f"-Wl,-z,stack-size={_STACK_BYTES}", f"-Wl,--max-memory={_MEMORY_BYTES}"),
)
_ASC_FLAGS: Final = (
    *("-O2", "--runtime", "stub", "--use", "abort=", "--exportStart", "_initialize"),
    *("--maximumMemory", str(_MEMORY_PAGES)),
)
_RUST_TARGET: Final = "wasm32-unknown-unknown"
_RUST_FLAGS: Final = (
    *("--edition", "2021", "--crate-type", "cdylib", "--target", _RUST_TARGET, "-C", "opt-level=s"),
    *("-C", "panic=abort", "-C", "lto=yes", "-C", "strip=symbols", "-C", f"link-arg=--max-memory={_MEMORY_BYTES}"),
)


def default_cache(environ: Mapping[str, str]) -> Path:
    """Return the cache's folder. ``PALYRA_TOOLCHAINS`` names another one, for machines that share it."""
    from platformdirs import user_cache_path

    named = environ.get(CACHE_VARIABLE)
    return Path(named) if named else user_cache_path("palyra") / "toolchains"


class Toolchains:
    """``say`` prints progress for a person: the first build of a language takes a while."""

    def __init__(self, cache: Path, *, wit: Path, environ: Mapping[str, str], say: Callable[[str], None]) -> None:
        self._cache = cache
        self._wit = wit
        self._environ = dict(environ)
        self._say = say

    def build(self, folder: Path, language: Language, modules: Mapping[str, ModuleBuild]) -> BuiltModules:
        built: dict[str, bytes] = {}
        arguments: dict[str, tuple[str, ...]] = {}
        for name, module in modules.items():
            built[name], arguments[name] = self._compile(folder, language, module.sources)
        return BuiltModules(modules=built, ingredients=self._ingredients(language), arguments=arguments)

    def _compile(self, folder: Path, language: Language, sources: tuple[str, ...]) -> tuple[bytes, tuple[str, ...]]:
        main = sources[0]
        with tempfile.TemporaryDirectory(prefix="palyra-build-") as scratch:
            output = Path(scratch, "module.wasm")
            match language:
                case Language.WAT:
                    return _from_text(folder / main), ("wat2wasm", main)
                case Language.C:
                    compiled = [one for one in sources if one.endswith(".c")] or [main]
                    shown = ("zig", "cc", *_C_FLAGS, *compiled)
                    command = [sys.executable, "-m", "ziglang", *shown[1:], "-o", str(output)]
                    more = {
                        "PYTHONPATH": str(self._install(ZIG)),
                        "ZIG_GLOBAL_CACHE_DIR": str(self._cache / "zig-cache"),
                        "ZIG_LOCAL_CACHE_DIR": str(self._cache / "zig-cache"),
                    }
                case Language.ASSEMBLYSCRIPT:
                    shown = ("asc", main, *_ASC_FLAGS)
                    asc = self._install(ASSEMBLYSCRIPT) / "node_modules" / "assemblyscript" / "bin" / "asc.js"
                    command, more = [self._program("node"), str(asc), *shown[1:], "--outFile", str(output)], {}
                case Language.PYTHON:
                    home = self._install(COMPONENTIZE_PY)
                    path = Path(main)
                    app = ("componentize", "-p", str(path.parent), path.stem)
                    shown = ("componentize-py", "-w", "skill", *app)
                    program = ("import sys, componentize_py; sys.exit(componentize_py.script())",)
                    command = [sys.executable, "-c", *program, "-d", str(self._wit), "-w", "skill", *app]
                    command += ["-o", str(output)]
                    more = {"PYTHONPATH": str(home), "PYTHONDONTWRITEBYTECODE": "1"}
                case Language.RUST:
                    shown = ("rustc", *_RUST_FLAGS, main)
                    command, more = [self._rustc(), *shown[1:], "-o", str(output)], {}
            self._run(command, folder, more, _SECONDS_TO_COMPILE, BuildFailed, f"compiling {main}")
            return _bounded(output), shown

    def _ingredients(self, language: Language) -> tuple[Ingredient, ...]:
        package = PACKAGES.get(language)
        if package is not None:
            return (package.ingredient,)
        if language is Language.RUST:
            version = subprocess.run(
                [self._rustc(), "--version"], capture_output=True, text=True, check=False, timeout=_SECONDS_TO_INSTALL
            ).stdout.split()
            return (Ingredient(name="rustc", version=version[1] if len(version) > 1 else "", kind="application"),)
        return ()

    def _install(self, package: Package) -> Path:
        """Return the folder of a package, which is fetched if it is missing, and put in place whole or not at all."""
        place = self._cache / package.folder
        if place.is_dir():
            return place
        with self._lock_package(package):
            if not place.is_dir():
                self._fetch(package, place)
        return place

    @contextmanager
    def _lock_package(self, package: Package) -> Iterator[None]:
        """Allow one fetch of a package at a time: other builds wait, and find it done."""
        try:
            self._cache.mkdir(parents=True, exist_ok=True, mode=0o700)
            lock = open(self._cache / f".{package.folder}.lock", "wb")  # noqa: SIM115 - closed below
        except OSError as error:
            raise ToolchainUnavailable(f"cannot write into {self._cache}: {error.strerror}") from error
        with lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def _fetch(self, package: Package, place: Path) -> None:
        self._say(f"fetching {package.name} {package.version} from {package.registry} into {self._cache}")
        scratch = Path(tempfile.mkdtemp(prefix=f".{package.folder}-", dir=self._cache))
        try:
            if package.registry == "npm":
                wanted = f"{package.name}@{package.version}"
                command = [self._program("npm"), "install", "--prefix", str(scratch), "--ignore-scripts", "--no-audit"]
                command += ["--no-fund", "--no-save", wanted]
            else:
                wanted = f"{package.name}=={package.version}"
                command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
                command += ["--no-deps", "--only-binary", ":all:", "--no-compile", "--target", str(scratch), wanted]
            self._run(command, scratch, {}, _SECONDS_TO_INSTALL, ToolchainUnavailable, f"fetching {wanted}")
            os.rename(scratch, place)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)

    def _program(self, name: str) -> str:
        found = shutil.which(name, path=self._environ.get("PATH"))
        if found is None:
            raise ToolchainUnavailable(
                f"AssemblyScript needs {name}, which is not here", hint="install Node.js with npm, then try again"
            )
        return found

    def _rustc(self) -> str:
        hint = f"install Rust with its target {_RUST_TARGET}, for example `rustup target add {_RUST_TARGET}`"
        found = shutil.which("rustc", path=self._environ.get("PATH"))
        if found is None:
            raise ToolchainUnavailable("there is no rustc here", hint=hint)
        asked = [found, "--print", "target-libdir", "--target", _RUST_TARGET]
        answer = subprocess.run(asked, capture_output=True, text=True, check=False, timeout=_SECONDS_TO_INSTALL)
        if answer.returncode or not Path(answer.stdout.strip()).is_dir():
            raise ToolchainUnavailable(f"rustc is here without its target {_RUST_TARGET}", hint=hint)
        return found

    def _run(
        self,
        command: list[str],
        folder: Path,
        more: Mapping[str, str],
        seconds: int,
        problem: type[BuildFailed] | type[ToolchainUnavailable],
        what: str,
    ) -> None:
        try:
            done = subprocess.run(
                command,
                cwd=folder,
                env={**self._environ, **more},
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=seconds,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise problem(f"{what} took longer than {seconds} seconds") from error
        except OSError as error:
            raise problem(f"{what}: cannot start {command[0]}: {error.strerror}") from error
        if done.returncode:
            words = "\n".join(part.strip() for part in (done.stderr, done.stdout) if part.strip())
            raise problem(f"{what} failed with status {done.returncode}:\n{words[-_SHOWN_CHARS:]}")


def _from_text(path: Path) -> bytes:
    from palyra.wasm.engine.config import assemble_text

    try:
        return assemble_text(path.read_text("utf-8"))
    except (ValueError, OSError) as error:
        raise BuildFailed(f"{path.name}: {error}") from error


def _bounded(path: Path) -> bytes:
    try:
        size = path.stat().st_size
        if size > MAX_MODULE_BYTES:
            raise BuildFailed(f"the module has {size} bytes; at most {MAX_MODULE_BYTES} are allowed")
        return path.read_bytes()
    except OSError as error:
        raise BuildFailed("the compiler ended well and wrote no module") from error
