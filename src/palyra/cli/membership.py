"""The pairing of a device or a worker, on its own side: its code, the end of its run, and its status."""

from typing import Any

from palyra.cli.terminal import read_stdin
from palyra.clock import rfc3339
from palyra.errors import PalyraError, RemoteError
from palyra.visible_text import escape, render_fields

MAX_CODE_BYTES = 4096


def read_code(word: str) -> str:
    """Return the code, from standard input for ``-``: every process of the machine can read a command line."""
    return word if word != "-" else read_stdin(MAX_CODE_BYTES).decode("utf-8", "replace")


def require_good_end(end: Any) -> None:
    """Raise the error that ended a run, if it was one."""
    if end.code:
        known = PalyraError.registry[end.code]
        raise RemoteError(end.message, remote_code=end.code, hint=known.hint, exit_code=known.exit_code)


def render_membership(kind: str, data: dict[str, Any]) -> str:
    ends = data.get("certificate_ends_ms")
    return render_fields(
        (
            (kind, escape(data.get(f"{kind}_id", ""))),
            ("name", escape(data["name"])),
            ("state", escape(str(data["state"]))),
            ("why", escape(str(data.get("why", "")))),
            ("since", rfc3339(data["since_ms"]) if data.get("since_ms") else ""),
            ("servers", escape(", ".join(data["servers"]))),
            ("certificate", f"generation {data['generation']}, ends {rfc3339(ends)}" if ends else ""),
            ("leases", escape(", ".join(data.get("open_leases", ())))),
            ("note", escape("; ".join(data["told"]))),
        )
    )
