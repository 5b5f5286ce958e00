"""Who may ask what: each request of the service has a right, and one that has none cannot be asked."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

from palyra.browser.session_view import Caller
from palyra.errors import Denied
from palyra.identity.principal import Principal


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
    # Asked for nobody in particular.
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


def admitted(method: str, caller: Caller) -> Caller:
    """The caller, with names that are names; raises where they are not, or may not ask this at all."""
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
