"""A device's own folder: its pairing record, its lock and its status file."""

import contextlib
import fcntl
import os
from typing import Any, Final

import msgspec

from palyra.config.state_dir import StateDir
from palyra.devicelink import limits
from palyra.errors import InvalidInput, Tampered, Unavailable
from palyra.secret import Secret


class NotPaired(Unavailable):
    code = "nodes.not_paired"
    hint = "`palyra pair code` at the daemon makes a code; `palyra node run` or `palyra-workerd join` uses it here"


class AlreadyPaired(InvalidInput):
    code = "nodes.already_paired"
    hint = "`palyra node leave`, or `palyra-workerd leave`, ends the present pairing; then pair again"


class HostRunning(Unavailable):
    code = "nodes.host_running"
    hint = "one host works on a folder at a time: stop the other, or give this one another --state-dir"


class DeviceFileBad(Tampered):
    code = "nodes.device_file_bad"
    hint = "the device's own file cannot be read: `leave --forget`, then pair again"


class DaemonUnreachable(Unavailable):
    code = "nodes.daemon_unreachable"
    hint = "check the address, the daemon, and what lies between"


# A device's pairing is one document, so that key, certificate and trust change together or not at all.

FORMAT: Final = "palyra-node-device/1"
_KEYS: Final = ("key_pem", "pending_key_pem")


class HeldCertificate(msgspec.Struct, frozen=True, kw_only=True):
    """A certificate's generation, when renewal is due, and when it ends."""

    generation: int
    renew_at_ms: int
    not_after_ms: int


class DeviceRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A device's pairing. ``certificate_pem`` is empty before the first certificate.

    ``pending_key_pem`` is the key of a request without an answer yet. The daemon repeats its answer for the same key.
    """

    device_name: str
    servers: tuple[str, ...]
    device_id: str = ""
    key_pem: Secret | None = None
    certificate_pem: str = ""
    ca_bundle_pem: str = ""
    generation: int = 0
    pending_key_pem: Secret | None = None
    # The state of an interrupted pairing, which ``Joining`` writes and reads.
    pairing: dict[str, str] = {}

    @property
    def paired(self) -> bool:
        return bool(self.certificate_pem and self.key_pem is not None and self.device_id)


class _Document(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    format: str
    device_name: str
    servers: tuple[str, ...]
    device_id: str
    key_pem: str
    certificate_pem: str
    ca_bundle_pem: str
    generation: int
    pending_key_pem: str
    pairing: dict[str, str]


def write_record(record: DeviceRecord) -> bytes:
    # msgspec does not encode a subclass of str.
    fields = {**msgspec.structs.asdict(record), "device_id": str.__str__(record.device_id)}
    for name in _KEYS:
        # The file has mode 0600 and is the only place of the key.
        fields[name] = "" if fields[name] is None else fields[name].reveal()
    return msgspec.json.format(msgspec.json.encode(_Document(format=FORMAT, **fields))) + b"\n"


def read_record(raw: bytes) -> DeviceRecord:
    try:
        document = msgspec.json.decode(raw, type=_Document)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        # The decoder's message may quote a key.
        raise DeviceFileBad("the device's file is cut off or damaged") from None
    if document.format != FORMAT:
        raise DeviceFileBad(f"the device's file has the format {document.format[:64]!r}; this version reads {FORMAT}")
    fields = msgspec.structs.asdict(document)
    del fields["format"]
    keys = {name: Secret(fields[name]) if fields[name] else None for name in _KEYS}
    return DeviceRecord(**{**fields, **keys})


# Files are written whole, durably and for this user alone. A copy of the pairing record lies beside it.

DEVICE_FILE: Final = "{kind}-device.v1.json"
STATUS_FILE: Final = "{kind}-status.v1.json"
LOCK_FILE: Final = "{kind}-host.lock"
BACKUP: Final = ".bak"


class PairingFolder:
    """``kind`` names the files. ``warnings`` are messages for the person about damaged files."""

    def __init__(self, folder: StateDir, kind: str) -> None:
        self.folder = folder
        self._device_file = DEVICE_FILE.format(kind=kind)
        self._backup_file = self._device_file + BACKUP
        self._status_file = STATUS_FILE.format(kind=kind)
        self._lock_file = LOCK_FILE.format(kind=kind)
        self._lock: int | None = None
        self.warnings: list[str] = []

    def lock(self) -> None:
        """Take the lock of the folder's one host. It ends with the process."""
        descriptor = os.open(
            self.folder.root / self._lock_file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600
        )
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(descriptor)
            raise HostRunning("another process already runs on this folder") from None
        self._lock = descriptor

    def unlock(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def is_locked(self) -> bool:
        """Return whether a host runs on this folder now."""
        try:
            self.lock()
        except HostRunning:
            return True
        self.unlock()
        return False

    def load(self) -> DeviceRecord | None:
        """Load the pairing, or its copy if the file is damaged. The result is None if neither file exists."""
        raw = self.read(self._device_file, limits.MAX_DEVICE_FILE_BYTES)
        backup = self.read(self._backup_file, limits.MAX_DEVICE_FILE_BYTES)
        if raw is None and backup is None:
            return None
        try:
            if raw is None:
                raise DeviceFileBad("the device's file is gone")
            return read_record(raw)
        except DeviceFileBad as error:
            if backup is None:
                raise
            found = read_record(backup)
            self.warnings.append(f"{error.message}: the last good copy is used")
            self.folder.write_atomic(self._device_file, backup)
            return found

    def save(self, record: DeviceRecord) -> None:
        """Write the file, then its copy: after a power cut at least one of them is whole."""
        content = write_record(record)
        self.folder.write_atomic(self._device_file, content)
        self.folder.write_atomic(self._backup_file, content)

    def write_status(self, status: dict[str, Any]) -> None:
        self.folder.write_atomic(self._status_file, msgspec.json.encode(status))

    def read_status(self) -> dict[str, Any]:
        raw = self.read(self._status_file, limits.MAX_DEVICE_FILE_BYTES)
        try:
            status = msgspec.json.decode(raw or b"{}")
        except (msgspec.MsgspecError, UnicodeDecodeError):
            return {}
        return status if isinstance(status, dict) else {}

    def forget(self) -> None:
        """Delete all files of the pairing, the key first."""
        for name in (self._device_file, self._backup_file, self._status_file):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self.folder.root / name)

    def read(self, name: str, most: int) -> bytes | None:
        try:
            descriptor = os.open(self.folder.root / name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise DeviceFileBad(f"cannot read {name}: {error.strerror}") from error
        with open(descriptor, "rb") as file:
            return file.read(most + 1)[:most]
