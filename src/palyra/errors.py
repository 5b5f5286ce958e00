"""The one error tree.

A branch says what kind of outcome an error is, and so which exit code and HTTP status it gets; a leaf lives beside
the concept that raises it and carries the stable ``concept.reason`` code that appears in the API, the journal, the
metrics and the docs.

    PalyraError
    ├── Failed          exit 1   the work was attempted and did not succeed
    ├── InvalidInput    exit 2   the caller must change the request
    ├── Denied          exit 3   policy says no
    ├── NeedsApproval   exit 4   policy says: ask a person first
    ├── LimitExceeded   exit 5   a named limit or a deadline was reached
    ├── Unavailable     exit 6   something this needs is not there now
    ├── Tampered        exit 1   evidence does not verify
    └── NotProven       exit 7   evidence is whole, and nothing signed covers it

Every leaf is registered by its code; two leaves with one code are a programming error found at import.
"""

from enum import IntEnum
from typing import Any, ClassVar


class ExitCode(IntEnum):
    DONE = 0
    FAILED = 1
    USAGE = 2
    DENIED = 3
    NEEDS_APPROVAL = 4
    LIMIT = 5
    UNAVAILABLE = 6
    NOT_PROVEN = 7


class PalyraError(Exception):
    """Base of every error a person or a program may see. ``details`` are JSON values and never secrets."""

    code: ClassVar[str] = ""
    hint: str = ""
    exit_code: ClassVar[ExitCode] = ExitCode.FAILED
    http_status: ClassVar[int] = 500

    registry: ClassVar[dict[str, type["PalyraError"]]] = {}

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        code = cls.__dict__.get("code")
        if not code:
            return
        known = PalyraError.registry.get(code)
        if known is not None and (known.__module__, known.__qualname__) != (cls.__module__, cls.__qualname__):
            raise TypeError(f"error code {code!r} is declared twice: {known.__qualname__} and {cls.__qualname__}")
        PalyraError.registry[code] = cls

    def __init__(self, message: str, *, hint: str | None = None, **details: Any) -> None:
        super().__init__(message)
        self.message = message
        if hint is not None:
            self.hint = hint
        # An id is a str with a name of its own, which encoders do not know.
        self.details: dict[str, Any] = {
            name: str(value) if isinstance(value, str) else value for name, value in details.items()
        }

    def as_dict(self) -> dict[str, Any]:
        """Return ``code``, ``message``, ``hint`` and any ``details``, the same shape at every interface."""
        shown: dict[str, Any] = {"code": self.code, "message": self.message, "hint": self.hint}
        if self.details:
            shown["details"] = self.details
        return shown

    def diagnostics(self) -> str:
        """Return the text for people: the fault, then the remedy."""
        code = self.as_dict()["code"]
        return f"{self.message}\n  code: {code}" + (f"\n  hint: {self.hint}" if self.hint else "")


class Failed(PalyraError):
    http_status = 500


class InvalidInput(PalyraError):
    exit_code = ExitCode.USAGE
    http_status = 400


class Denied(PalyraError):
    exit_code = ExitCode.DENIED
    http_status = 403


class NeedsApproval(PalyraError):
    exit_code = ExitCode.NEEDS_APPROVAL
    http_status = 202


class LimitExceeded(PalyraError):
    exit_code = ExitCode.LIMIT
    http_status = 429


class Unavailable(PalyraError):
    exit_code = ExitCode.UNAVAILABLE
    http_status = 503


class Tampered(PalyraError):
    http_status = 409


class NotProven(PalyraError):
    exit_code = ExitCode.NOT_PROVEN
    http_status = 409


class RemoteError(Failed):
    """An error another Palyra process reported, kept with its own code, hint and exit code."""

    code = "remote.error"

    def __init__(
        self,
        message: str,
        *,
        remote_code: str,
        hint: str = "",
        exit_code: int = 1,
        http_status: int = 500,
        **details: Any,
    ) -> None:
        super().__init__(message, hint=hint, **details)
        self.remote_code = remote_code
        self.remote_exit_code = ExitCode(exit_code)
        self.remote_http_status = http_status

    def as_dict(self) -> dict[str, Any]:
        return {**super().as_dict(), "code": self.remote_code}


class InternalError(Failed):
    """A bug in Palyra itself: shown without its inner text, which goes to the log."""

    code = "internal.bug"
    hint = "this is a fault in Palyra; the daemon's log has the details under the same call id"


def exit_code_of(error: PalyraError) -> ExitCode:
    return error.remote_exit_code if isinstance(error, RemoteError) else error.exit_code


class CallCancelled(Failed):
    code = "call.cancelled"
    hint = "somebody asked for this call to stop"
    http_status = 409
