"""The checks before a program starts, in one fixed order, each refusal with a kind of its own.

They judge in turn: enabled; shape (``parse_command``); executable allowed; interpreters, programs that run programs,
environment; workspace and working directory; paths in arguments; hosts in arguments, and whether allowed ones can be
served. A command that passes gets exactly the words of the request.
"""

import re
from collections.abc import Iterable, Iterator
from functools import cache
from typing import Final

import msgspec

from palyra.egress.domain.refusal import OddTarget
from palyra.egress.domain.rules import find_rule, parse_rules
from palyra.egress.domain.target import canonical_host
from palyra.sandbox.domain.network import list_argument_hosts, refuse_unserved
from palyra.sandbox.domain.plan import build_environment
from palyra.sandbox.domain.process_run import (
    EgressDenied,
    InterpreterDenied,
    InvalidCommand,
    ProcessCommand,
    SandboxDisabled,
    encode_word,
    excerpt,
)
from palyra.sandbox.domain.profile import RESERVED_ENVIRONMENT, EgressEnforcementMode, SandboxProfile
from palyra.sandbox.guards.argument_paths import find_text, resolve_cwd, validate_argument_workspace_scope
from palyra.sandbox.guards.executables import (
    SYSTEM_ROOTS,
    ExecutableLookup,
    HostFiles,
    PathExecutables,
    PathLook,
    ResolvedExecutable,
    base_name,
    find_executable,
    join,
    refuse_unlisted_executable,
)
from palyra.sandbox.guards.interpreters import refuse_interpreter
from palyra.workspace.errors import PlaceChanged
from palyra.workspace.root import find_place

# Variables that a caller may not set: those that make an innocent program load code or run a program.
#
# Some stay refused even where interpreters are allowed, because they change *every* program, the sandbox's own steps
# included. An operator's own variables, in the profile, are not judged.

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
    """Compile the patterns for the first variable: that takes longer than loading all the rest of a module."""
    return tuple((re.compile(pattern), why) for pattern, why in _WITH_INTERPRETERS)


def refuse_environment(variables: Iterable[tuple[str, str]], *, allow_interpreters: bool) -> None:
    """Judge the names that a caller gave, as written: programs look for exactly these letters."""
    for name, _ in variables:
        own = name in RESERVED_ENVIRONMENT
        if own or re.fullmatch(_ALWAYS, name):
            why = "the sandbox sets it itself" if own else "it changes every program there is"
            raise InterpreterDenied(
                f"the variable {name} may not be set: {why}",
                hint="omit it; this one is refused even with allow_interpreters",
                argument=f"env.{name}",
            )
        if allow_interpreters or name in _HARMLESS:
            continue
        for pattern, why in _reasons():
            if pattern.fullmatch(name):
                raise InterpreterDenied(f"the variable {name} may not be set: {why}", argument=f"env.{name}")


# The hosts that a command line names, and whether the profile allows them.
#
# This finds what is written. A program can reach hosts that no argument names; only the network of strict mode keeps
# it from that. The check refuses an honest mistake at once and by name.

_PORTS: Final = {
    "http": 80,
    "ws": 80,
    "https": 443,
    "wss": 443,
    "ftp": 21,
    "ftps": 990,
    "ssh": 22,
    "sftp": 22,
    "git": 9418,
}
# After these, browsers and curl accept any number and kind of slashes.
_LENIENT: Final = r"(?:https?|ftps?|wss?):[/\\]+"
_URL: Final = re.compile(rf"(?:({_LENIENT})|([a-z][a-z0-9+.-]{{0,62}}):(?://|\\\\))([^/?#\s'\"<>`]*)", re.IGNORECASE)
_LOCAL_SCHEMES: Final = frozenset({"file", "unix", "sqlite", "data", "local"})
_AT_HOST: Final = re.compile(r"(?:^|[=,\s])[A-Za-z0-9_.+%-]{1,255}@((?:[^\s:/@,=]{1,255}|\[[^\]\s]*\]))(?=[:/]|$)")
_HOST_PORT: Final = re.compile(
    r"(?:^|[=,@\s])((?=[^:]{0,255}\.)[^\s:/@,=\[\]]{1,255}|localhost|\[[0-9a-f:.%]+\]):([0-9]{1,5})(?=$|[/:,\s])",
    re.IGNORECASE,
)
# Programs that take a host, or host:path, as a plain word.
_HOST_WORDS_TEXT: Final = """
    curl wget wget2 aria2c http https xh ssh scp sftp rsync ping ping6 telnet nc ncat netcat socat dig host nslookup
    drill traceroute tracepath mtr nmap whois ftp lftp openssl ssh-keyscan ssh-copy-id mosh
"""
_HOST_WORDS: Final = frozenset(_HOST_WORDS_TEXT.split())
# Programs whose plain words can only be hosts, so that a name without a dot is one too.
_ONLY_HOSTS_TEXT: Final = """
    ssh ping ping6 telnet nc ncat netcat dig host nslookup traceroute tracepath mtr
"""
_ONLY_HOSTS: Final = frozenset(_ONLY_HOSTS_TEXT.split())
# Options of these programs whose next word is a file or other text.
_NO_HOST_AFTER_TEXT: Final = """
    -o -O -T -d -H -A -e -b -c -F -u -X -w -m -i -E -P -p -l -t -n -a -W -q -z -r -D -Y -y -C -Q -k -K -S -U
    --output --data --header --user-agent --cookie --cookie-jar --form --user --request --upload-file
    --output-document --cacert --cert --key --max-time --write-out --config --data-binary --data-raw --json
    --referer --range --directory-prefix --exclude --include
"""
_NO_HOST_AFTER: Final = frozenset(_NO_HOST_AFTER_TEXT.split())
_LOOKS_LIKE_HOST: Final = re.compile(
    r"[^\s/:@=,]+\.[^\s/:@=,]*[^\s/:@=,.]\.?|localhost|\[[0-9a-f:.%]+\]|0x[0-9a-f.x]+|\d{4,}", re.IGNORECASE
)
# --resolve and --connect-to of curl: after host:port comes the address that is used instead.
_REDIRECTED: Final = re.compile(r"(?:^|[=,])[^\s:/,=]*:\d{0,5}:(\[[^\]\s]*\]|[^\s:,/\[\]]+)")
_GIT_NETWORK: Final = frozenset({"clone", "fetch", "pull", "push", "ls-remote", "remote", "submodule", "archive"})
_STRIPPED_BY_PARSERS: Final = dict.fromkeys(map(ord, "\t\r\n"))


class Destination(msgspec.Struct, frozen=True):
    """A host as it was found: ``where`` names the argument, ``spelled`` is its text."""

    where: str
    spelled: str
    host: str
    port: int | None = None
    # A URL whose user part, or whose backslash, makes programs disagree about the host.
    tricky: str = ""


def find_destinations(command: ProcessCommand) -> tuple[Destination, ...]:
    """Find every host that the arguments, the environment or the request itself name."""
    found: list[Destination] = []
    text = find_text(command.command, command.args).texts
    name = base_name(command.command).lower()
    git_goes_out = name == "git" and not _GIT_NETWORK.isdisjoint(command.args)
    skip = False
    for position, word in enumerate(command.args):
        where = f"args[{position}]"
        if position not in text or name == "curl":
            found.extend(_in_text(word, where))
        if name == "curl":
            found.extend(Destination(where, word, host) for host in _REDIRECTED.findall(word))
        if name in _HOST_WORDS and not skip and not word.startswith("-"):
            found.extend(_plain_host(word, where, name))
        elif git_goes_out and position not in text:
            found.extend(_remote_path(word, where))
        skip = word in _NO_HOST_AFTER
    for variable, value in command.env:
        found.extend(_in_text(value, f"env.{variable}"))
    for position, host in enumerate(command.requested_egress_hosts):
        found.append(_host_and_port(host, f"requested_egress_hosts[{position}]", host))
    return tuple(dict.fromkeys(found))


def refuse_other_hosts(found: tuple[Destination, ...], allowed_hosts: tuple[str, ...]) -> None:
    """Raise ``EgressDenied`` for the first host that no rule covers."""
    rules = parse_rules(allowed_hosts)
    for destination in found:
        if destination.tricky:
            raise _denied(destination, destination.tricky)
        try:
            host = canonical_host(destination.host)
        except OddTarget as odd:
            raise _denied(destination, odd.message) from None
        if find_rule(rules, host, destination.port) is None:
            shown = host if destination.port is None else f"{host}:{destination.port}"
            raise _denied(destination, f"{shown} is not among the allowed hosts")


def _denied(destination: Destination, why: str) -> EgressDenied:
    return EgressDenied(
        f"{destination.where} names {excerpt(destination.spelled)!r}: {excerpt(why)}",
        argument=destination.where,
        host=excerpt(destination.host),
        port=destination.port,
    )


def _in_text(word: str, where: str) -> Iterator[Destination]:
    text = word.translate(_STRIPPED_BY_PARSERS)
    rest = text
    for found in _URL.finditer(text):
        scheme = (found.group(1) or found.group(2)).partition(":")[0].lower()
        last = scheme.rpartition("+")[2]
        if last in _LOCAL_SCHEMES or not found.group(3):
            continue
        yield _authority(found.group(3), where, found.group(), last, scheme)
        rest = rest.replace(found.group(), " ")
    if "://" in rest:
        return
    for found in _AT_HOST.finditer(rest):
        if "." in found.group(1) or ":" in rest:
            yield Destination(where, found.group().strip(), found.group(1))
    for found in _HOST_PORT.finditer(rest):
        if int(found.group(2)) > 0 and not found.group(1).startswith("."):
            yield Destination(where, found.group().strip("=,@ "), found.group(1), int(found.group(2)))


def _authority(authority: str, where: str, spelled: str, scheme: str, full: str) -> Destination:
    users, at, address = authority.rpartition("@")
    tricky = ""
    if "\\" in authority or "@" in users or "%" in address or "\\" in spelled:
        tricky = "programs disagree about which part of this is the host"
    elif at and full in ("http", "https", "ws", "wss"):
        tricky = "a user or password in the address can hide the host"
    found = _host_and_port(address, where, spelled, _PORTS.get(scheme))
    return Destination(where, spelled, found.host, found.port, tricky)


def _host_and_port(text: str, where: str, spelled: str, default: int | None = None) -> Destination:
    found = re.fullmatch(r"(\[[^\]]*\]|[^:]*)(?::(\d{1,5})?)?", text)
    if found is None:
        return Destination(where, spelled, text)
    return Destination(where, spelled, found.group(1), int(found.group(2)) if found.group(2) else default)


def _plain_host(word: str, where: str, name: str) -> Iterator[Destination]:
    """Read a word of a network program: ``evil.example/x``, ``user@host``, ``host:path``, ``2130706433``."""
    if "://" in word or word.startswith(("/", ".", "@", "+", "~")):
        return
    first = re.split(r"[/?#\s]", word, maxsplit=1)[0].rpartition("@")[2]
    if name in ("scp", "rsync") and ":" not in word:
        return
    host = first if first.startswith("[") else first.partition(":")[0]
    host = host.partition("]")[0] + "]" if host.startswith("[") else host
    only_hosts = name in _ONLY_HOSTS or (name in ("scp", "rsync") and ":" in first)
    if not host or (host.isdigit() and only_hosts and len(host) <= len("65535") and name != "ping"):
        return
    if only_hosts or _LOOKS_LIKE_HOST.fullmatch(host):
        yield Destination(where, word, host)


def _remote_path(word: str, where: str) -> Iterator[Destination]:
    """Read ``host:path``, which git accepts without a user."""
    found = re.fullmatch(r"([A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)+):[^\d\s].*", word)
    if found and "://" not in word:
        yield Destination(where, word, found.group(1), 22)


class GuardHost(msgspec.Struct, frozen=True, kw_only=True):
    """The machine as the checks see it, and whether it may run processes at all."""

    executables: ExecutableLookup
    files: PathLook
    enabled: bool = True


class Checked(msgspec.Struct, frozen=True, kw_only=True):
    """``argv`` holds the words of the request, byte by byte. ``env`` is the caller's part, laid over the sandbox's own.

    ``executable`` was judged at its ``found`` path: start that one, whatever ``argv[0]`` names.
    """

    argv: tuple[bytes, ...]
    cwd: str
    env: tuple[tuple[str, str], ...]
    executable: ResolvedExecutable


def check_before_spawn(
    profile: SandboxProfile, command: ProcessCommand, host: GuardHost, *, served: bool = False
) -> Checked:
    """Refuse the command or return its words. ``served``: an egress service lets just the allowed hosts through."""
    if not host.enabled:
        raise SandboxDisabled("running processes is switched off here")
    if not command.command or any("\0" in word for word in command.argv):
        raise InvalidCommand("the command is empty or has a NUL character", argument="command")
    readable = (*SYSTEM_ROOTS, *profile.tool_roots)
    # A relative command is looked up where it would run. A later check judges that directory.
    requested_cwd = join(profile.workspace_root, command.cwd or ".")
    found = find_executable(host.executables, command.command, requested_cwd)
    refuse_unlisted_executable(found, profile.allowed_executables, readable)
    if not profile.allow_interpreters:
        refuse_interpreter(found, command)
    refuse_environment(command.env, allow_interpreters=profile.allow_interpreters)
    cwd = resolve_cwd(command.cwd, profile.workspace_root, host.files)
    if command.cwd_place is not None and find_place(profile.workspace_root, cwd) != command.cwd_place:
        raise PlaceChanged("the working directory leads to another place than the one decided on", argument="cwd")
    validate_argument_workspace_scope(command, profile.workspace_root, cwd, host.files, readable)
    if profile.egress is not EgressEnforcementMode.NONE and (hosts := find_destinations(command)):
        refuse_other_hosts(hosts, list_argument_hosts(profile))
    if profile.reaches_hosts:
        refuse_unserved(profile, served=served)
    return Checked(argv=tuple(map(encode_word, command.argv)), cwd=cwd, env=command.env, executable=found)


def build_guard_host(profile: SandboxProfile, *, enabled: bool = True) -> GuardHost:
    """Build the view of the machine for this profile. Keep it for the next calls: its index of PATH is costly."""
    path = dict(build_environment(profile))["PATH"]
    return GuardHost(executables=PathExecutables(path, profile.workspace_root), files=HostFiles(), enabled=enabled)
