"""The folders of one session's downloads, and the only way into and out of them.

Chromium writes into a folder of its own, where it may leave links, pipes, and files that it goes on writing. So
nothing is moved from there. A finished file is opened without following anything. At most the limit of it is copied
under an id into a folder that only the daemon can enter. The copy is hashed, judged, kept and served.
"""

import asyncio
import contextlib
import hashlib
import os
import re
import shutil
import stat
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

import msgspec

from palyra.browser.domain.budget import SessionBudget
from palyra.browser.domain.content_sniffing import Sniffed, sniff
from palyra.browser.domain.download import (
    MAX_REFUSALS_KEPT,
    MAX_SOURCE_CHARS,
    Arrived,
    DownloadChanged,
    DownloadId,
    DownloadRecord,
    DownloadRefused,
    DownloadRules,
    DownloadsUnusable,
    Folder,
    NoSuchDownload,
    NotReleasable,
    Quarantined,
    Reason,
    Verdict,
    judge,
    to_display_name,
)
from palyra.browser.engine.browser_folders import open_folder
from palyra.errors import Unavailable

# Between two checks of a growing file. At the loopback's speed some MiB pass, which fit the mount's size limit.
GROWTH_POLL_SECONDS: Final = 0.05
_FOLDER_MODE: Final = 0o700
_FILE_MODE: Final = 0o600
# Chromium's names: a file has the GUID that its events carry, and until it is whole this ending.
_GUID: Final = re.compile(r"[0-9A-Za-z-]{8,64}")
_PARTIAL: Final = ".crdownload"
_IN: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_OUT: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_RECORD: Final = ".json"
_MAX_RECORD_BYTES: Final = 16_384
_KEPT: Final = (Folder.ALLOWLIST, Folder.QUARANTINE)


class Announced(msgspec.Struct, frozen=True, kw_only=True):
    """A download that has begun, as the browser's events describe it."""

    guid: str
    suggested_name: str
    source: str
    declared_type: str | None = None


class DownloadSandboxSession:
    """One session's downloads. Methods block on the disk. ``on_finish`` gets the record of each that ended."""

    def __init__(
        self,
        root: Path,
        incoming: Path,
        *,
        budget: SessionBudget,
        rules: DownloadRules,
        now_ms: Callable[[], int],
        on_finish: Callable[[DownloadRecord], None] = lambda _: None,
    ) -> None:
        self._root, self._incoming = root, incoming
        self._budget, self._rules, self._now_ms, self._on_finish = budget, rules, now_ms, on_finish
        self._begun: dict[str, tuple[DownloadId, Announced]] = {}
        self._records: dict[str, DownloadRecord] = {}
        self._refusals: list[DownloadRecord] = []
        self.refused = 0
        self.bytes_kept = 0
        self.files_kept = 0
        try:
            for folder in (root, *(root / name for name in _KEPT)):
                folder.mkdir(mode=_FOLDER_MODE, parents=True, exist_ok=True)
                _require_private(folder)
            for name in _KEPT:
                self._load(name)
        except OSError as error:
            raise DownloadsUnusable(f"cannot use {root}: {error.strerror}") from error

    def begin(self, announced: Announced, declared_length: int | None = None) -> DownloadId:
        """Return the id of the coming record. Raise for a file that cannot be kept, so that the browser stops it."""
        if not _GUID.fullmatch(announced.guid):
            raise DownloadRefused("the browser named a file in a way that it never does", reason=Reason.NOT_A_FILE)
        reason = self._quota(0)
        if reason is None and declared_length is not None and declared_length > self._budget.max_download_bytes:
            reason = Reason.TOO_LARGE
        if reason is not None:
            self._refuse(announced, reason, 0)
            raise DownloadRefused(f"not downloaded: {reason}", reason=reason)
        id_ = DownloadId.new()
        self._begun[announced.guid] = (id_, announced)
        return id_

    def find_overgrown(self) -> list[str]:
        try:
            with open_folder(self._incoming) as incoming:
                # A copy: downloads begin and end on other threads meanwhile.
                sizes = {
                    guid: max(_size(incoming, guid), _size(incoming, guid + _PARTIAL)) for guid in tuple(self._begun)
                }
        except OSError as error:
            raise DownloadsUnusable(f"cannot look at the browser's downloads: {error.strerror}") from error
        room = self._budget.max_session_download_bytes - self.bytes_kept
        all_too_much = sum(sizes.values()) > room
        return [guid for guid, size in sizes.items() if all_too_much or size > self._budget.max_download_bytes]

    async def watch(self, stop: Callable[[str], Awaitable[None]]) -> None:
        stopped: set[str] = set()
        while True:
            for guid in await asyncio.to_thread(self.find_overgrown):
                if guid not in stopped:
                    stopped.add(guid)
                    await stop(guid)
            stopped.intersection_update(self._begun)
            await asyncio.sleep(GROWTH_POLL_SECONDS)

    def finish(self, guid: str, *, complete: bool) -> DownloadRecord:
        begun = self._begun.pop(guid, None)
        if begun is None:
            raise NoSuchDownload("no such download has begun in this session")
        record = self._take_in(*begun, complete=complete)
        self._on_finish(record)
        return record

    def _take_in(self, id_: DownloadId, announced: Announced, *, complete: bool) -> DownloadRecord:
        guid, most = announced.guid, self._budget.max_download_bytes
        try:
            with open_folder(self._root) as root:
                data, true_size = self._taken(guid, most)
                if data is None:
                    return self._refuse(announced, Reason.NOT_A_FILE, 0, id_)
                reason = self._quota(len(data))
                if reason is not None:
                    return self._refuse(announced, reason, true_size, id_)
                arrived = Arrived(
                    suggested_name=announced.suggested_name,
                    declared_type=announced.declared_type,
                    sniffed=sniff(data),
                    complete=complete and true_size <= most,
                    too_large=true_size > most,
                )
                record = self._record(id_, announced, judge(arrived, self._rules), arrived.sniffed, data)
                record = msgspec.structs.replace(record, complete=arrived.complete)
                _write(root, f"{record.folder}/{id_}", data)
                _write(root, f"{record.folder}/{id_}{_RECORD}", msgspec.json.encode(record))
        except OSError as error:
            raise DownloadsUnusable(f"cannot keep a download: {error.strerror}") from error
        finally:
            self.discard(guid)
        self._keep(record)
        return record

    def discard(self, guid: str) -> None:
        if not _GUID.fullmatch(guid):
            return
        with contextlib.suppress(OSError), open_folder(self._incoming) as incoming:
            for name in (guid, guid + _PARTIAL):
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(name, dir_fd=incoming)

    def records(self) -> list[DownloadRecord]:
        return [*self._records.values(), *self._refusals]

    def read(self, id_: str) -> bytes:
        """Return the content of an allowed download, if it is still the one that was judged."""
        record = self._known(id_)
        if record.folder is not Folder.ALLOWLIST:
            raise Quarantined(f"{record.name} is in quarantine: {', '.join(record.reasons)}", reasons=record.reasons)
        return self._content(record)

    def release(self, id_: str, by: str) -> DownloadRecord:
        record = self._known(id_)
        if record.folder is not Folder.QUARANTINE or not record.complete:
            raise NotReleasable(f"{record.name} is {'not whole' if record.folder is Folder.QUARANTINE else 'allowed'}")
        self._content(record)
        released = msgspec.structs.replace(record, folder=Folder.ALLOWLIST, released_by=by)
        try:
            with open_folder(self._root) as root:
                # The record comes first: content without one is waste, a record without content would be a lie.
                _write(root, f"{Folder.ALLOWLIST}/{id_}{_RECORD}", msgspec.json.encode(released))
                os.rename(f"{record.folder}/{id_}", f"{Folder.ALLOWLIST}/{id_}", src_dir_fd=root, dst_dir_fd=root)
                os.unlink(f"{record.folder}/{id_}{_RECORD}", dir_fd=root)
        except OSError as error:
            raise DownloadsUnusable(f"cannot release a download: {error.strerror}") from error
        self._records[id_] = released
        return released

    def delete(self, id_: str) -> DownloadRecord:
        """Delete a download and return its record. The session's budget does not grow by it."""
        record = self._known(id_)
        try:
            with open_folder(self._root) as root:
                for name in (f"{record.folder}/{id_}", f"{record.folder}/{id_}{_RECORD}"):
                    with contextlib.suppress(FileNotFoundError):
                        os.unlink(name, dir_fd=root)
        except OSError as error:
            raise DownloadsUnusable(f"cannot delete a download: {error.strerror}") from error
        del self._records[id_]
        return record

    def _taken(self, guid: str, most: int) -> tuple[bytes | None, int]:
        try:
            with open_folder(self._incoming) as incoming:
                descriptor = _open_either(incoming, guid, guid + _PARTIAL)
        except OSError:
            return None, 0
        status = os.fstat(descriptor)
        # A second name would be a file of somebody else's.
        if not stat.S_ISREG(status.st_mode) or status.st_nlink != 1:
            os.close(descriptor)
            return None, 0
        with open(descriptor, "rb") as file:
            data = file.read(most + 1)
        return data[:most], max(status.st_size, len(data))

    def _quota(self, coming: int) -> Reason | None:
        if self.files_kept >= self._budget.max_session_downloads:
            return Reason.FILES_SPENT
        return Reason.BYTES_SPENT if self.bytes_kept + coming > self._budget.max_session_download_bytes else None

    def _record(
        self, id_: str, announced: Announced, verdict: Verdict, sniffed: Sniffed, data: bytes
    ) -> DownloadRecord:
        return DownloadRecord(
            id=str(id_),
            name=to_display_name(announced.suggested_name),
            source=announced.source[:MAX_SOURCE_CHARS],
            declared_type=announced.declared_type and announced.declared_type[:MAX_SOURCE_CHARS],
            detail=sniffed.detail,
            size=len(data),
            digest=hashlib.sha256(data).hexdigest(),
            folder=verdict.folder,
            reasons=verdict.reasons,
            finished_ms=self._now_ms(),
        )

    def _refuse(self, announced: Announced, reason: Reason, size: int, id_: DownloadId | None = None) -> DownloadRecord:
        verdict = Verdict(folder=Folder.REFUSED, reasons=(reason,))
        record = self._record(id_ or DownloadId.new(), announced, verdict, Sniffed(frozenset()), b"")
        record = msgspec.structs.replace(record, size=size, complete=False)
        self.refused += 1
        if len(self._refusals) < MAX_REFUSALS_KEPT:
            self._refusals.append(record)
        return record

    def _keep(self, record: DownloadRecord) -> None:
        self._records[record.id] = record
        self.files_kept += 1
        self.bytes_kept += record.size

    def _known(self, id_: str) -> DownloadRecord:
        try:
            return self._records[id_]
        except KeyError:
            raise NoSuchDownload(f"there is no download {id_[:40]!r} in this session") from None

    def _content(self, record: DownloadRecord) -> bytes:
        try:
            with open_folder(self._root) as root:
                data = _read(root, f"{record.folder}/{record.id}", record.size)
        except OSError as error:
            raise DownloadChanged(f"{record.name} cannot be read: {error.strerror}", id=record.id) from error
        if hashlib.sha256(data).hexdigest() != record.digest:
            raise DownloadChanged(f"{record.name} is not what was downloaded", id=record.id)
        return data

    def _load(self, folder: Folder) -> None:
        """Load the downloads of an earlier daemon. A file without its record, or the reverse, is removed."""
        with open_folder(self._root) as root, open_folder(self._root / folder) as place:
            for name in sorted(os.listdir(place)):
                if name.endswith(_RECORD):
                    continue
                try:
                    record = msgspec.json.decode(_read(place, name + _RECORD, _MAX_RECORD_BYTES), type=DownloadRecord)
                except (OSError, msgspec.MsgspecError):
                    record = None
                if record is None or record.id != name or record.folder is not folder:
                    os.unlink(name, dir_fd=place)
                else:
                    self._keep(record)
            for name in os.listdir(place):
                if name.endswith(_RECORD) and name.removesuffix(_RECORD) not in self._records:
                    os.unlink(f"{folder}/{name}", dir_fd=root)


def _require_private(folder: Path) -> None:
    status = os.lstat(folder)
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid() or stat.S_IMODE(status.st_mode) & 0o077:
        raise DownloadsUnusable(f"{folder} is not a folder of the daemon's alone")


def _size(folder: int, name: str) -> int:
    try:
        return os.stat(name, dir_fd=folder, follow_symlinks=False).st_size
    except OSError:
        return 0


def _open_either(folder: int, whole: str, part: str) -> int:
    try:
        return os.open(whole, _IN, dir_fd=folder)
    except FileNotFoundError:
        return os.open(part, _IN, dir_fd=folder)


def _read(folder: int, name: str, most: int) -> bytes:
    # Opening a folder or a pipe this way fails, or does not wait.
    with open(os.open(name, _IN, dir_fd=folder), "rb") as file:
        # One byte more is enough to have another digest.
        return file.read(most + 1)


def _write(folder: int, name: str, data: bytes) -> None:
    with open(os.open(name, _OUT, _FILE_MODE, dir_fd=folder), "wb") as file:
        file.write(data)


class FoldersUnusable(Unavailable):
    code = "browser.folders_unusable"
    hint = "check the space and the permissions of the browser daemon's state directory"


class SessionFolders:
    """A folder for each session's downloads, which ends with the session. It blocks on the disk."""

    def __init__(self, root: Path) -> None:
        self._root = root
        try:
            root.mkdir(mode=_FOLDER_MODE, parents=True, exist_ok=True)
            status = os.lstat(root)
        except OSError as problem:
            raise FoldersUnusable(f"cannot use {root}: {problem.strerror}") from problem
        if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid():
            raise FoldersUnusable(f"{root} is not a folder of the daemon's own")
        root.chmod(_FOLDER_MODE)

    def of(self, session_id: str) -> Path:
        return self._root / session_id

    def remove(self, session_id: str) -> None:
        self._remove(self.of(session_id))

    def collect(self) -> int:
        left = sorted(self._root.iterdir())
        for path in left:
            self._remove(path)
        return len(left)

    def _remove(self, path: Path) -> None:
        try:
            if path.is_symlink() or not path.is_dir():
                path.unlink(missing_ok=True)
            else:
                shutil.rmtree(path)
        except FileNotFoundError:
            return
        except OSError as problem:
            raise FoldersUnusable(f"cannot remove {path}: {problem.strerror}") from problem
