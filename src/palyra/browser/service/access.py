"""Rights of the service's requests, and the socket and token that prove the owner."""

import os
import secrets
import stat
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Final

from palyra.browser.domain.session_api import Caller
from palyra.errors import Denied, Unavailable
from palyra.ids import Principal
from palyra.secret import Secret


class OperatorOnly(Denied):
    code = "browser.operator_only"
    hint = "a person with the operator's role does this, in the console or with `palyra browser`"


class OwnerOnly(Denied):
    code = "browser.owner_only"
    hint = "this is for the principal whose session it is; take the session over to act in it yourself"


class Right(StrEnum):
    OWNER = "owner"
    EITHER = "either"
    OPERATOR = "operator"
    # On nobody's behalf.
    ANYONE = "anyone"


RIGHTS: Final[Mapping[str, Right]] = {
    "Health": Right.ANYONE,
    "CreateSession": Right.OWNER,
    "GetSession": Right.EITHER,
    "ListSessions": Right.EITHER,
    "CloseSession": Right.EITHER,
    "Navigate": Right.OWNER,
    "Act": Right.OWNER,
    "Observe": Right.EITHER,
    "Screenshot": Right.EITHER,
    "ListTabs": Right.EITHER,
    "ReadConsoleLog": Right.EITHER,
    "ReadNetworkLog": Right.EITHER,
    "ReadEvents": Right.EITHER,
    "GetCookies": Right.EITHER,
    "ListDownloads": Right.EITHER,
    "ReadDownload": Right.OWNER,
    "ReleaseDownload": Right.OPERATOR,
    "DeleteDownload": Right.EITHER,
    "ListProfiles": Right.EITHER,
    "CreateProfile": Right.OWNER,
    "RenameProfile": Right.OWNER,
    "DeleteProfile": Right.OWNER,
    "ResetProfile": Right.OWNER,
    "FollowProfiles": Right.OPERATOR,
    "AcceptProfiles": Right.OPERATOR,
    "ExportStorageState": Right.OWNER,
    "ImportStorageState": Right.OWNER,
    "WatchSession": Right.EITHER,
    "TakeOver": Right.OPERATOR,
    "HandBack": Right.OPERATOR,
    "Operate": Right.OPERATOR,
}


def admit(method: str, caller: Caller) -> Caller:
    right = RIGHTS[method]
    if right is Right.ANYONE:
        return caller
    if caller.operator:
        if right is Right.OWNER:
            raise OwnerOnly(f"{method} is not asked as an operator")
        Principal.parse(caller.operator)
        if caller.principal:
            Principal.parse(caller.principal)
        return caller
    if right is Right.OPERATOR:
        raise OperatorOnly(f"{method} is for operators")
    Principal.parse(caller.principal)
    return caller


# The daemon listens at a socket in a folder with a token. The folder and both files are the owner's alone. Each start
# makes a new token. A process that can read it could as well read everything else of the owner.

# Within the state directory.
SOCKET_FOLDER: Final = "browser/run"
SOCKET_NAME: Final = "browserd.sock"
TOKEN_NAME: Final = "browserd.token"  # noqa: S105  a file's name
# Metadata of every call.
TOKEN_KEY: Final = "palyra-browser-token"  # noqa: S105  a key's name
_TOKEN_BYTES: Final = 32
_MAX_TOKEN_BYTES: Final = 256
# A token while it is written, so that no reader gets a part of it.
_HALF_WRITTEN: Final = f".{TOKEN_NAME}"
_FOLDER_MODE: Final = 0o700
_FILE_MODE: Final = 0o600


class BrowserAway(Unavailable):
    code = "browser.away"
    hint = "start it with `palyra up` or `palyra-browserd`; its log says why it ended"


class NotAdmitted(BrowserAway):
    """Another daemon has taken the place of the one that the client knew, with a token of its own."""

    code = "browser.not_admitted"
    hint = "the browser daemon answers its owner's palyrad only, which reads the token beside its socket"


class SocketExposed(Denied):
    code = "browser.socket_exposed"
    hint = "the folder of the browser daemon's socket must be yours and closed to everybody else (chmod 700)"


class SocketPlace:
    """The folder of the socket. It is held by a descriptor, and the socket is named by it: any path length will do."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        try:
            self._held = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as problem:
            raise BrowserAway(f"there is no browser daemon at {folder}: {problem.strerror}") from problem
        try:
            status = os.fstat(self._held)
            if status.st_uid != os.geteuid() or stat.S_IMODE(status.st_mode) & 0o077:
                raise SocketExposed(f"others can reach {folder}")
        except BaseException:
            self.close()
            raise

    @classmethod
    def make(cls, folder: Path) -> "SocketPlace":
        folder.mkdir(mode=_FOLDER_MODE, parents=True, exist_ok=True)
        place = cls(folder)
        place.clear()
        return place

    @property
    def address(self) -> str:
        return f"unix:/proc/self/fd/{self._held}/{SOCKET_NAME}"

    def clear(self) -> None:
        for name in (SOCKET_NAME, TOKEN_NAME, _HALF_WRITTEN):
            try:
                os.unlink(name, dir_fd=self._held)
            except FileNotFoundError:
                continue

    def new_token(self) -> Secret:
        """Write a token. This comes before the socket: every process that finds the socket finds its token."""
        token = secrets.token_urlsafe(_TOKEN_BYTES)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        with os.fdopen(os.open(_HALF_WRITTEN, flags, _FILE_MODE, dir_fd=self._held), "w", encoding="ascii") as file:
            file.write(token)
        try:
            os.link(_HALF_WRITTEN, TOKEN_NAME, src_dir_fd=self._held, dst_dir_fd=self._held)
        finally:
            os.unlink(_HALF_WRITTEN, dir_fd=self._held)
        return Secret(token)

    def read_token(self) -> Secret:
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            with os.fdopen(os.open(TOKEN_NAME, flags, dir_fd=self._held), encoding="ascii") as file:
                return Secret(file.read(_MAX_TOKEN_BYTES))
        except (OSError, ValueError) as problem:
            raise BrowserAway(f"no browser daemon runs at {self.folder}") from problem

    def close_socket(self) -> None:
        """Restrict the mode of the socket that the server made."""
        os.chmod(SOCKET_NAME, _FILE_MODE, dir_fd=self._held)

    def close(self) -> None:
        os.close(self._held)
