"""Where the server is, parsed once. A token never travels in plain text beyond this machine by accident."""

import ipaddress
import os
import re
from pathlib import Path
from typing import Annotated, Self
from urllib.parse import urlsplit

import msgspec

from palyra.errors import Denied, InvalidInput, PalyraError, Unavailable
from palyra.limits import KIB
from palyra.secret import Secret

DEFAULT_BASE_URL = "http://127.0.0.1:7142"
_DEFAULT_PORTS = {"http": 80, "https": 443}


class BadAddress(InvalidInput):
    code = "client.bad_address"
    hint = "write http://127.0.0.1:7142 or https://host[:port]"


class PlaintextRefused(InvalidInput):
    code = "client.plaintext_refused"
    hint = "use https beyond this machine, or say allow_plaintext=True where the network itself is trusted"


class UnusableToken(InvalidInput):
    code = "client.unusable_token"
    hint = "a token is one line of visible characters, as `palyra token create` printed it"


class ServerAddress(msgspec.Struct, frozen=True, kw_only=True):
    host: str
    port: int
    tls: bool
    prefix: str = ""

    @classmethod
    def parse(cls, url: str, *, allow_plaintext: bool = False) -> Self:
        try:
            parts = urlsplit(url)
            port = parts.port
        except ValueError as error:
            raise BadAddress(f"{url[:200]!r} is not an address") from error
        if parts.scheme not in _DEFAULT_PORTS or not parts.hostname or not _is_visible(url):
            raise BadAddress(f"{url[:200]!r} is not an http or https address")
        if parts.username is not None or parts.query or parts.fragment:
            raise BadAddress("an address has no user, query or fragment: pass the token as token=")
        address = cls(
            host=parts.hostname,
            port=_DEFAULT_PORTS[parts.scheme] if port is None else port,
            tls=parts.scheme == "https",
            prefix=parts.path.rstrip("/"),
        )
        if not address.tls and not address.is_loopback and not allow_plaintext:
            raise PlaintextRefused(f"{address.host} is another machine and http does not protect the token")
        return address

    @property
    def is_loopback(self) -> bool:
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"

    @property
    def host_header(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == _DEFAULT_PORTS["https" if self.tls else "http"] else f"{host}:{self.port}"


def usable_token(token: Secret | str | None) -> Secret | None:
    """Check the token here, without showing it: a library's error might print the header that holds it."""
    if token is None:
        return None
    secret = token if isinstance(token, Secret) else Secret(token)
    if not _is_visible(secret.reveal()):
        raise UnusableToken("the token is empty or holds spaces, control or non-ASCII characters")
    return secret


def _is_visible(text: str) -> bool:
    return bool(text) and text.isascii() and text.isprintable() and " " not in text


# Finding the daemon of a state directory: its address in ``daemon.json``, the owner's token in ``operator.token``.

DAEMON_FILE = "daemon.json"
TOKEN_FILE = "operator.token"  # noqa: S105 (a file's name)
# Both files hold one line.
MAX_STATE_FILE_BYTES = 4 * KIB
_LISTEN_STATE = "0A"


class NoDaemon(Unavailable):
    code = "client.no_daemon"
    hint = "start one with `palyra up`"


class ForeignListener(Denied):
    code = "client.foreign_listener"
    hint = "the daemon's port is now another user's: the token is not sent there; start the daemon on another port"


class DaemonFile(msgspec.Struct, frozen=True, kw_only=True):
    url: str
    pid: Annotated[int, msgspec.Meta(gt=0)]


class LocalDaemon(DaemonFile, frozen=True, kw_only=True):
    token: Secret


def find_daemon(state_dir: Path) -> LocalDaemon:
    """Find the daemon that wrote its address here, if its process lives and the port belongs to this user.

    A daemon that died leaves its file behind. The next process on its port must not get the owner's token.
    """
    raw = _read(state_dir / DAEMON_FILE)
    try:
        daemon = msgspec.json.decode(raw, type=DaemonFile)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise NoDaemon(f"{state_dir / DAEMON_FILE} is malformed") from error
    if not _lives(daemon.pid):
        raise NoDaemon(f"the daemon that wrote {state_dir / DAEMON_FILE} is gone")
    address = ServerAddress.parse(daemon.url)
    owners = listener_uids(address.port) if address.is_loopback else set()
    if owners - {os.geteuid()}:
        raise ForeignListener(f"port {address.port} is held by another user")
    token = Secret(_read(state_dir / TOKEN_FILE).decode("utf-8", "replace").strip())
    return LocalDaemon(url=daemon.url, pid=daemon.pid, token=token)


def started_before(state_dir: Path, file: Path) -> bool:
    """Return whether the running daemon began to listen before the file was last changed or replaced.

    The inode's change time counts too: `cp -p` and deployments make copies that keep the old modification time."""
    try:
        find_daemon(state_dir)
        status = file.stat()
        return (state_dir / DAEMON_FILE).stat().st_mtime_ns < max(status.st_mtime_ns, status.st_ctime_ns)
    except (PalyraError, OSError):
        return False


def listener_uids(port: int, tables: tuple[Path, ...] = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))) -> set[int]:
    """List the users who listen on the port. The set is empty where the kernel has no such table."""
    pattern = re.compile(rf"\s*\d+: [0-9A-F]+:{port:04X} \S+ {_LISTEN_STATE} \S+ \S+ \S+\s+(\d+)\s")
    uids = set()
    for table in tables:
        try:
            lines = table.read_text("ascii").splitlines()
        except OSError:
            continue
        uids |= {int(found[1]) for line in lines if (found := pattern.match(line))}
    return uids


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        # Another user's process: not the daemon that wrote a file in our directory.
        return False
    return True


def _read(path: Path) -> bytes:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError as error:
        raise NoDaemon(f"no daemon runs on {path.parent}: there is no {path.name}") from error
    except OSError as error:
        raise NoDaemon(f"cannot read {path}: {error.strerror}") from error
    with open(descriptor, "rb") as file:
        return file.read(MAX_STATE_FILE_BYTES)
