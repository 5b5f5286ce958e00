"""Everything that is checked before a program is started, in one fixed order, each refusal with a kind of its own.

Enabled; shape (``parse_command``); executable allowed; interpreters, programs that run programs, environment; workspace
and working directory; paths in arguments; hosts in arguments, and whether allowed ones can be served. What passes gets
exactly the words that were asked for.
"""

import re
from collections.abc import Iterable
from functools import cache
from typing import Final

import msgspec

from palyra.sandbox.domain.command import ProcessCommand, encode_word
from palyra.sandbox.domain.network import named_by_arguments, refuse_unserved
from palyra.sandbox.domain.outcome import InterpreterDenied, InvalidCommand, SandboxDisabled
from palyra.sandbox.domain.profile import RESERVED_ENVIRONMENT, EgressEnforcementMode, SandboxProfile
from palyra.sandbox.guards.executables import (
    SYSTEM_ROOTS,
    ExecutableLookup,
    PathLook,
    ResolvedExecutable,
    find_executable,
    join,
    refuse_unlisted_executable,
)
from palyra.sandbox.guards.host_preflight import check_preflight
from palyra.sandbox.guards.interpreters import refuse_interpreter
from palyra.sandbox.guards.workspace_scope import resolve_cwd, validate_argument_workspace_scope

# Variables that a caller may not set: those that make an innocent program load code or run a program.
#
# Some stay refused even where interpreters are allowed, because they change what *every* program is, the sandbox's
# own steps included. An operator's own variables, in the profile, are not judged.

# The dynamic loader's and the C library's: they load code into, or change the files of, any program at all.
_ALWAYS: Final = (
    r"LD_.*|DYLD_.*|_RLD.*|LDR_.*|GCONV_PATH|GLIBC_TUNABLES|GETCONF_DIR|HOSTALIASES|LOCALDOMAIN|LOCPATH|MALLOC_.*|"
    r"NIS_PATH|NLSPATH|RESOLV_HOST_CONF|RES_OPTIONS|RESOLV_.*|TZDIR|PALYRA_.*"
)

_WITH_INTERPRETERS: Final[tuple[tuple[str, str], ...]] = (
    (r"PATH|EXECIGNORE|CDPATH", "it decides which programs are found"),
    (
        r"BASH_.*|BASHOPTS|ENV|SHELLOPTS|SHELL|IFS|PS[0-4]|PROMPT_COMMAND|ZDOTDIR|KSH_ENV|FPATH|GLOBIGNORE|POSIXLY_CORRECT|"
        r"COMSPEC|PATHEXT|FCEDIT|HISTFILE|INPUTRC|TERMINFO.*|TERMCAP|fish_.*",
        "shells and option parsers read it",
    ),
    (r"PYTHON.*|PYENV_.*|VIRTUAL_ENV|PIP_.*|UV_.*|PYTEST_.*|COVERAGE_PROCESS_START", "Python loads code through it"),
    (r"NODE_.*|NPM_.*|npm_.*|DENO_.*|BUN_.*|YARN_.*|ELECTRON_.*", "JavaScript engines load code through it"),
    (
        r"PERL.*|RUBY.*|GEM_.*|BUNDLE_.*|PHP.*|LUA_.*|R_.*|TCL.*|TK_LIBRARY|AWK.*|GUILE_.*|JULIA_.*",
        "an interpreter loads code through it",
    ),
    (
        r"JAVA_.*|_JAVA_OPTIONS|JDK_JAVA_OPTIONS|JAVA_TOOL_OPTIONS|CLASSPATH|MAVEN_.*|GRADLE_.*|DOTNET_.*|COR_.*|"
        r"CORECLR_.*|ERL_.*|ELIXIR_.*|GHC.*|OCAML.*|CAML_.*",
        "a runtime loads code through it",
    ),
    (r"GIT_.*", "git runs programs named in it, or reads its configuration from it"),
    (r"SSH_.*|RSYNC_.*|CVS_.*|SVN_.*|HG.*|SUDO_.*|DOAS_.*", "a connection runs programs named in it"),
    (
        r"EDITOR|VISUAL|.*PAGER|.*_EDITOR|BROWSER|LESS|LESS_.*|LESS(OPEN|CLOSE|KEY.*|EDIT|SECURE)|MORE|MANOPT|"
        r"MAN(PATH|_.*)?|VIM.*|EX(INIT|RC)|EMACS.*|NVIM_.*|MAIL.*|SENDMAIL",
        "editors and pagers are programs, or run them",
    ),
    (
        r"CC|CXX|CPP|LD|AR|AS|.*_WRAPPER|GCC_.*|COMPILER_PATH|LIBRARY_PATH|C_INCLUDE_PATH|CPATH|CPLUS_INCLUDE_PATH|"
        r"COLLECT_.*|DEPENDENCIES_OUTPUT|CCACHE_.*|DISTCC_.*|RUST.*|CARGO.*|GO[A-Z].*|CGO_.*|CMAKE_.*|MAKE.*|MFLAGS|"
        r"NINJA_.*|PKG_CONFIG.*|ACLOCAL_PATH|AUTO.*|M4.*|CONFIG_SHELL|CONFIG_SITE|LIBTOOL.*",
        "compilers and build tools run programs named in it",
    ),
    (
        r"TAR_OPTIONS|TAPE|RSH|GZIP|BZIP2?|XZ_.*|ZIP(OPT)?|UNZIP.*|ZSTD_.*|GREP_.*|WGET.*|CURL_HOME|NETRC|PSQL.*|PG.*|"
        r"MYSQL.*|LIBMYSQL.*|SQLITE_.*|OPENSSL_.*|SSLKEYLOGFILE|GNUPGHOME|GPG.*|PINENTRY.*|KRB5.*|GSS.*|PAM_.*|DOCKER_.*|"
        r"KUBECONFIG|KUBE.*|AWS_.*CONFIG.*|APT_.*|DPKG_.*|DEB_.*|SYSTEMD_.*|DBUS_.*|GIO_.*|GTK.*|QT_.*|XDG_.*|G_.*|"
        r"MAGICK_.*|GS_.*|TEX.*|GROFF.*|DISPLAY|XAUTHORITY|WAYLAND_DISPLAY",
        "programs take options, plug-ins or commands from it",
    ),
)
# Members of those families that hold a plain value.
_HARMLESS_WORDS: Final = """
    RUST_LOG RUST_BACKTRACE NODE_ENV GOOS GOARCH PGHOST PGPORT PGUSER PGDATABASE PGPASSWORD PYTHONUNBUFFERED
    PYTHONHASHSEED PYTHONDONTWRITEBYTECODE PYTHONIOENCODING PYTHONUTF8 GIT_AUTHOR_NAME GIT_AUTHOR_EMAIL
    GIT_AUTHOR_DATE GIT_COMMITTER_NAME GIT_COMMITTER_EMAIL GIT_COMMITTER_DATE GIT_TERMINAL_PROMPT
    GIT_OPTIONAL_LOCKS PERL_HASH_SEED
"""
_HARMLESS: Final = frozenset(_HARMLESS_WORDS.split())


@cache
def _reasons() -> tuple[tuple[re.Pattern[str], str], ...]:
    """Made when the first variable is judged: the patterns take longer to compile than all the rest of a module."""
    return tuple((re.compile(pattern), why) for pattern, why in _WITH_INTERPRETERS)


def refuse_environment(variables: Iterable[tuple[str, str]], *, allow_interpreters: bool) -> None:
    """Judges the names that a caller gave. Names are compared as written: programs look for exactly these letters."""
    for name, _ in variables:
        if name in RESERVED_ENVIRONMENT:
            raise InterpreterDenied(
                f"the variable {name} may not be set: the sandbox sets it itself",
                hint="leave it away; this one is refused even with allow_interpreters",
                argument=f"env.{name}",
            )
        if re.fullmatch(_ALWAYS, name):
            raise InterpreterDenied(
                f"the variable {name} may not be set: it changes every program there is",
                hint="leave it away; this one is refused even with allow_interpreters",
                argument=f"env.{name}",
            )
        if allow_interpreters or name in _HARMLESS:
            continue
        for pattern, why in _reasons():
            if pattern.fullmatch(name):
                raise InterpreterDenied(f"the variable {name} may not be set: {why}", argument=f"env.{name}")


class GuardHost(msgspec.Struct, frozen=True, kw_only=True):
    """What the checks may ask of the machine, and whether processes may be run on it at all."""

    executables: ExecutableLookup
    files: PathLook
    enabled: bool = True


class Checked(msgspec.Struct, frozen=True, kw_only=True):
    """``argv`` is what was asked for, byte by byte. ``env`` is the caller's part, to be laid over the sandbox's own.

    ``executable`` was judged at its ``found`` path: start that one, whatever ``argv[0]`` says.
    """

    argv: tuple[bytes, ...]
    cwd: str
    env: tuple[tuple[str, str], ...]
    executable: ResolvedExecutable


def check_before_spawn(
    profile: SandboxProfile, command: ProcessCommand, host: GuardHost, *, served: bool = False
) -> Checked:
    """``served`` says that somebody would let the allowed hosts, and no other, through to an isolated program."""
    if not host.enabled:
        raise SandboxDisabled("running processes is switched off here")
    if not command.command or any("\0" in word for word in command.argv):
        raise InvalidCommand("the command is empty or has a NUL character", argument="command")
    readable = (*SYSTEM_ROOTS, *profile.tool_roots)
    # A relative command is looked up where it would run; whether it may run there is judged in its turn.
    asked_cwd = join(profile.workspace_root, command.cwd or ".")
    found = find_executable(host.executables, command.command, asked_cwd)
    refuse_unlisted_executable(found, profile.allowed_executables, readable)
    if not profile.allow_interpreters:
        refuse_interpreter(found, command)
    refuse_environment(command.env, allow_interpreters=profile.allow_interpreters)
    cwd = resolve_cwd(command.cwd, profile.workspace_root, host.files)
    validate_argument_workspace_scope(command, profile.workspace_root, cwd, host.files, readable)
    if profile.egress is not EgressEnforcementMode.NONE:
        check_preflight(command, named_by_arguments(profile))
    refuse_unserved(profile, served=served)
    return Checked(argv=tuple(map(encode_word, command.argv)), cwd=cwd, env=command.env, executable=found)
