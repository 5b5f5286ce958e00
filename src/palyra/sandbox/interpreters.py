"""Programs that run whatever text they are handed, and every name under which they hide.

A denied interpreter is no wall around what a program may do: the sandbox is. It keeps an agent's calls legible, one
program and its arguments, so that policy and people can judge them.
"""

import re
from functools import lru_cache
from typing import Final

from palyra.sandbox.executables import SYSTEM_ROOTS, ResolvedExecutable
from palyra.sandbox.path_walk import is_beneath

_SHELLS: Final = """
    sh bash dash ash hush zsh fish ksh mksh lksh pdksh oksh loksh csh tcsh rc es yash posh elvish nu nushell xonsh osh
    oil ysh scsh sash mrsh gash rbash rksh rzsh git-shell pwsh powershell cmd
"""
_LANGUAGES: Final = """
    python pypy ipython jython micropython circuitpython graalpy pythonw py pdb pydoc bpython ptpython
    node nodejs deno bun js qjs quickjs d8 rhino jjs gjs njs duk mujs iojs electron tsx ts-node hermes mongosh
    mongo ruby irb erb jruby mruby mirb truffleruby perl perl6 raku rakudo moar parrot prename perldoc suidperl
    php php-cgi php-fpm phpdbg hhvm phar lua luajit luatex texlua luahbtex luau moon resty tarantool
    awk gawk mawk nawk bwk original-awk goawk frawk pgawk igawk tclsh wish jimsh expect expectk itclsh tclkit
    osascript automator wscript cscript mshta r rscript littler julia octave octave-cli scilab matlab gnuplot maxima
    guile racket mzscheme gracket scheme mit-scheme chez petite chibi-scheme csi gsi gosh bigloo kawa sbcl clisp ecl
    ccl abcl gcl newlisp picolisp clojure clj bb hy
    java jshell scala kotlin groovy groovysh dotnet csharp fsi fsharpi mono erl escript elixir iex gleam
    ghci runghc runhaskell ghc hugs ocaml ocamlrun utop sml poly mosml
    sage swipl prolog gprolog yap gforth pforth factor rexx regina oorexx rebol gst pike slsh
    m4 gm4 dc swift dart tcc cling wine wine64 wasmtime wasmer wasm3 iwasm wasmedge
"""
INTERPRETERS: Final = frozenset((_SHELLS + _LANGUAGES).split())

# Texts that are in the program itself and hardly anywhere else: they find a copy that was changed by a byte, which no
# digest does. Only files outside the system's directories are searched for them.
CONTENT_MARKS: Final[dict[bytes, str]] = {
    b"BusyBox v": "busybox",
    b"GNU bash, version %s": "bash",
    b"PYTHONDONTWRITEBYTECODE": "python",
    b"NODE_PENDING_DEPRECATION": "node",
    b"PERL5OPT": "perl",
    b"RUBYGEMS_GEMDEPS": "ruby",
    b"$LuaVersion: Lua": "lua",
    b"PHP_INI_SCAN_DIR": "php",
    b"ZDOTDIR": "zsh",
    b"AWKLIBPATH": "gawk",
    b"mawk %s": "mawk",
    b"TCL_LIBRARY": "tclsh",
    b"toybox-": "toybox",
}

# Scripts of the distribution that do one fixed thing with files, which people use as if they were programs. Any other
# script is as good as its interpreter: who writes the script chooses what runs.
_FIXED_SCRIPTS: Final = """
    egrep fgrep gunzip uncompress zcat zcmp zdiff zegrep zfgrep zgrep bzcmp bzdiff bzgrep xzcmp xzdiff xzgrep
    which which.debianutils
"""
FIXED_SCRIPTS: Final = frozenset(_FIXED_SCRIPTS.split())

# Most calls are of a few programs, and each is judged by all of its names.
MAX_REMEMBERED_NAMES: Final = 1024

_VERSION: Final = re.compile(r"[-._]?v?\d.*$")
# Debian's and others' ways to tell builds of one program apart.
_BUILD: Final = re.compile(
    r"([-._+](static|dbg|debug|nox|minimal|tiny|small|full|basic|default|nopie|embed|jit|cli|any|system|portable|bin|pie))+$"
)
_EXTENSION: Final = re.compile(r"\.(exe|com|bat|cmd|bin|real|distrib|orig|wrapped|old)$")
_LOADER: Final = re.compile(r"ld(-linux.*|-musl-.*|64)?(-[\d.]+)?\.so(\.\d+)*|ld-[\d.]+\.so|ld\.so|rtld|dyld")


@lru_cache(maxsize=MAX_REMEMBERED_NAMES)
def plain_name(name: str) -> str:
    """A program's name without case, a login shell's dash and an extension that says nothing."""
    plain = name.strip().lstrip("-").casefold().removeprefix(".")
    while _EXTENSION.search(plain):
        plain = _EXTENSION.sub("", plain)
    return plain.removesuffix("-wrapped")


@lru_cache(maxsize=MAX_REMEMBERED_NAMES)
def interpreter_named(name: str) -> str | None:
    """The interpreter that a program of this name is: ``python`` for ``python3.11-dbg`` and for ``Python.EXE``."""
    plain = plain_name(name)
    # perl6 is a name of its own; python3.11-dbg loses its version, bash-static and vim.tiny their build.
    for guess in (plain, _BUILD.sub("", plain), _VERSION.sub("", plain), _BUILD.sub("", _VERSION.sub("", plain))):
        # R4.2 is R; r2 is another program.
        if guess in INTERPRETERS and (len(guess) > 1 or guess == plain or "." in plain):
            return guess
    return None


@lru_cache(maxsize=MAX_REMEMBERED_NAMES)
def is_dynamic_loader(name: str) -> bool:
    """The loader runs the program that it is given as an argument."""
    return _LOADER.fullmatch(plain_name(name)) is not None


def is_fixed_script(found: ResolvedExecutable) -> bool:
    """Whether a ``#!`` file is one of the distribution's own that are as good as a program."""
    name = found.real.rpartition("/")[2]
    return name in FIXED_SCRIPTS and found.on_path and any(is_beneath(found.real, root) for root in SYSTEM_ROOTS)
