"""The hosts that a command line names, and whether the profile allows them.

This finds what is written. A program can reach hosts that no argument names; only the strict mode's network keeps it
from that. The check exists so that an honest mistake is refused at once and by name.
"""

import re
from collections.abc import Iterator
from typing import Final

import msgspec

from palyra.egress.domain.refusal import OddTarget
from palyra.egress.domain.rules import HostRules
from palyra.egress.domain.target import canonical_host
from palyra.sandbox.domain.command import ProcessCommand, excerpt
from palyra.sandbox.domain.outcome import EgressDenied
from palyra.sandbox.guards.executables import base_name
from palyra.sandbox.guards.text_arguments import text_places

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
# Browsers and curl take any number and kind of slashes after these.
_LENIENT: Final = r"(?:https?|ftps?|wss?):[/\\]+"
_URL: Final = re.compile(rf"(?:({_LENIENT})|([a-z][a-z0-9+.-]{{0,62}}):(?://|\\\\))([^/?#\s'\"<>`]*)", re.IGNORECASE)
_LOCAL_SCHEMES: Final = frozenset({"file", "unix", "sqlite", "data", "local"})
_AT_HOST: Final = re.compile(r"(?:^|[=,\s])[A-Za-z0-9_.+%-]{1,255}@((?:[^\s:/@,=]{1,255}|\[[^\]\s]*\]))(?=[:/]|$)")
_HOST_PORT: Final = re.compile(
    r"(?:^|[=,@\s])((?=[^:]{0,255}\.)[^\s:/@,=\[\]]{1,255}|localhost|\[[0-9a-f:.%]+\]):([0-9]{1,5})(?=$|[/:,\s])",
    re.IGNORECASE,
)
# These are given a host, or host:path, as a plain word.
_HOST_WORDS: Final = frozenset(
    {
        *("curl", "wget", "wget2", "aria2c", "http", "https", "xh", "ssh", "scp", "sftp", "rsync", "ping", "ping6"),
        *("telnet", "nc", "ncat", "netcat", "socat", "dig", "host", "nslookup", "drill", "traceroute", "tracepath"),
        *("mtr", "nmap", "whois", "ftp", "lftp", "openssl", "ssh-keyscan", "ssh-copy-id", "mosh"),
    }
)
# Those whose plain words can only be hosts, so that a name without a dot is one too.
_ONLY_HOSTS: Final = frozenset(
    {
        "ssh",
        "ping",
        "ping6",
        "telnet",
        "nc",
        "ncat",
        "netcat",
        "dig",
        "host",
        "nslookup",
        "traceroute",
        "tracepath",
        "mtr",
    }
)
# Options of these programs whose next word is a file or other text.
_NO_HOST_AFTER: Final = frozenset(
    {
        *(
            "-o",
            "-O",
            "-T",
            "-d",
            "-H",
            "-A",
            "-e",
            "-b",
            "-c",
            "-F",
            "-u",
            "-X",
            "-w",
            "-m",
            "-i",
            "-E",
            "-P",
            "-p",
            "-l",
        ),
        *("-t", "-n", "-a", "-W", "-q", "-z", "-r", "-D", "-Y", "-y", "-C", "-Q", "-k", "-K", "-S", "-U"),
        *(
            "--output",
            "--data",
            "--header",
            "--user-agent",
            "--cookie",
            "--cookie-jar",
            "--form",
            "--user",
            "--request",
        ),
        *("--upload-file", "--output-document", "--cacert", "--cert", "--key", "--max-time", "--write-out", "--config"),
        *(
            "--data-binary",
            "--data-raw",
            "--json",
            "--referer",
            "--range",
            "--directory-prefix",
            "--exclude",
            "--include",
        ),
    }
)
_LOOKS_LIKE_HOST: Final = re.compile(
    r"[^\s/:@=,]+\.[^\s/:@=,]*[^\s/:@=,.]\.?|localhost|\[[0-9a-f:.%]+\]|0x[0-9a-f.x]+|\d{4,}", re.IGNORECASE
)
# --resolve and --connect-to of curl: after host:port comes the address that is used instead.
_REDIRECTED: Final = re.compile(r"(?:^|[=,])[^\s:/,=]*:\d{0,5}:(\[[^\]\s]*\]|[^\s:,/\[\]]+)")
_GIT_NETWORK: Final = frozenset({"clone", "fetch", "pull", "push", "ls-remote", "remote", "submodule", "archive"})
_STRIPPED_BY_PARSERS: Final = dict.fromkeys(map(ord, "\t\r\n"))


class Destination(msgspec.Struct, frozen=True):
    """A host as it was found: ``where`` names the argument, ``spelled`` is what stood there."""

    where: str
    spelled: str
    host: str
    port: int | None = None
    # A URL whose user part, or whose backslash, makes programs disagree about the host.
    tricky: str = ""


def named_destinations(command: ProcessCommand) -> tuple[Destination, ...]:
    """Every host that the arguments, the environment or the request itself name."""
    found: list[Destination] = []
    text = text_places(command.command, command.args).texts
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
    for position, asked in enumerate(command.requested_egress_hosts):
        found.append(_host_and_port(asked, f"requested_egress_hosts[{position}]", asked))
    return tuple(dict.fromkeys(found))


def check_preflight(command: ProcessCommand, allowed_hosts: tuple[str, ...]) -> tuple[Destination, ...]:
    """Raises ``EgressDenied`` for the first host that no rule covers; returns what was found."""
    rules = HostRules(allowed_hosts)
    found = named_destinations(command)
    for destination in found:
        if destination.tricky:
            raise _denied(destination, destination.tricky)
        try:
            host = canonical_host(destination.host)
        except OddTarget as odd:
            raise _denied(destination, odd.message) from None
        if not rules.cover(host, destination.port):
            shown = host if destination.port is None else f"{host}:{destination.port}"
            raise _denied(destination, f"{shown} is not among the allowed hosts")
    return found


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
    """A word of a network program: ``evil.example/x``, ``user@host``, ``host:path``, ``2130706433``."""
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
    """``host:path``, as git takes it without a user."""
    found = re.fullmatch(r"([A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)+):[^\d\s].*", word)
    if found and "://" not in word:
        yield Destination(where, word, found.group(1), 22)
