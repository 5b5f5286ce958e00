"""Finds the programs that a browser is started with, and whom it runs as."""

import os
import stat
from typing import Final

from palyra.browser.chromium_plan import Account, HostLayout
from palyra.errors import InvalidInput, Unavailable

# Never through PATH. The wrappers in /usr/bin are shell scripts that do not end with what they start.
CHROMIUM_PLACES: Final = (
    "/usr/lib/chromium/chromium-headless-shell",
    "/usr/lib/chromium/headless_shell",
    "/usr/lib64/chromium-browser/headless_shell",
)
_BWRAP: Final = ("/usr/bin/bwrap", "/usr/local/bin/bwrap", "/bin/bwrap")
_SETPRIV: Final = ("/usr/bin/setpriv", "/bin/setpriv")
_SHELLS: Final = ("/bin/dash", "/bin/bash", "/bin/sh")
_ROOTS: Final = ("/lib", "/lib32", "/lib64", "/libx32")


class BrowserMissing(Unavailable):
    code = "browser.not_installed"
    hint = "install chromium-headless-shell and bubblewrap (apt install chromium-headless-shell bubblewrap)"


class BadAccount(InvalidInput):
    code = "browser.bad_account"
    hint = "Chromium never runs as root: name the uid of an account that has nothing"


def find_layout(binary: str | None = None) -> HostLayout:
    """``binary`` is the operator's own choice of Chromium."""
    chromium = _program("Chromium", CHROMIUM_PLACES if binary is None else (binary,))
    links = tuple((path, os.readlink(path)) for path in _ROOTS if os.path.islink(path))
    return HostLayout(
        bwrap=_program("bubblewrap", _BWRAP),
        chromium=chromium,
        shell=os.path.realpath(_program("a shell", _SHELLS)),
        setpriv=_program("setpriv", _SETPRIV),
        links=links,
        directories=tuple(path for path in _ROOTS if os.path.isdir(path) and not os.path.islink(path)),
    )


def account_of(uid: int) -> Account:
    """Whom Chromium runs as: this account where we are root, and otherwise ourselves."""
    own = os.geteuid()
    if own != 0:
        return Account(uid=own, gid=os.getegid(), dropped=False)
    if uid <= 0:
        raise BadAccount(f"uid {uid} cannot be the browser's")
    return Account(uid=uid, gid=uid, dropped=True)


def _program(what: str, places: tuple[str, ...]) -> str:
    """One that other users could have written is passed over."""
    for place in places:
        try:
            status = os.stat(place)
        except OSError:
            continue
        if stat.S_ISREG(status.st_mode) and os.access(place, os.X_OK) and not status.st_mode & stat.S_IWOTH:
            return place
    raise BrowserMissing(f"{what} was not found at {', '.join(places)}")
