"""Candidates of the builder on disk: a folder for each, with its record and its project.

Nothing in them runs here before a person promotes it.
"""

import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

from palyra.errors import Failed, InvalidInput
from palyra.ids import Ulid
from palyra.skills.build.generation import CANDIDATE_VERSION, MAX_FILE_CHARS, MAX_FILES, Candidate, CandidateState
from palyra.skills.build.project import BUILD_FOLDER

_RECORD: Final = "candidate.json"
_PROJECT: Final = "project"
_FOLDER_MODE: Final = 0o700
_MAX_RECORD_BYTES: Final = 1024 * 1024


class NoSuchCandidate(InvalidInput):
    code = "skill.no_such_candidate"
    hint = "`palyra skill builder list` shows them"


class CandidateBroken(Failed):
    code = "skill.candidate_broken"
    hint = "discard it and build it again"


class Candidates:
    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def add(self, candidate: Candidate, files: Mapping[str, str]) -> Path:
        """Put a candidate in place whole, or not at all."""
        place = self._place(candidate.id)
        self._folder.mkdir(parents=True, exist_ok=True, mode=_FOLDER_MODE)
        scratch = self._folder / f".{candidate.id}.part"
        scratch.mkdir(mode=_FOLDER_MODE)
        try:
            for path, text in files.items():
                target = scratch / _PROJECT / path
                target.parent.mkdir(parents=True, exist_ok=True, mode=_FOLDER_MODE)
                with target.open("x", encoding="utf-8") as file:
                    file.write(text)
            (scratch / _RECORD).write_bytes(_encoded(candidate))
            os.rename(scratch, place)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
        return place / _PROJECT

    def put(self, candidate: Candidate) -> None:
        place = self._place(candidate.id) / _RECORD
        temporary = place.with_name(f".{_RECORD}.part")
        temporary.write_bytes(_encoded(candidate))
        os.replace(temporary, place)

    def all(self) -> tuple[Candidate, ...]:
        """Those that can be read; ``broken`` has the others."""
        return tuple(found for found in self._found().values() if isinstance(found, Candidate))

    def broken(self) -> dict[str, str]:
        """Map each candidate that cannot be read to its problem."""
        return {name: found.message for name, found in self._found().items() if isinstance(found, CandidateBroken)}

    def get(self, candidate_id: str) -> Candidate:
        place = self._place(candidate_id)
        if not place.is_dir():
            raise NoSuchCandidate(f"there is no candidate {candidate_id}")
        return self._read(place / _RECORD)

    def project(self, candidate_id: str) -> Path:
        return self._place(candidate_id) / _PROJECT

    def files(self, candidate_id: str) -> dict[str, bytes]:
        """Everything that can go into a build, and so everything a review is about. What a build made is not."""
        project = self.project(candidate_id)
        found: dict[str, bytes] = {}
        for parent, folders, names in os.walk(project):
            if Path(parent) == project and BUILD_FOLDER in folders:
                folders.remove(BUILD_FOLDER)
            for name in names:
                path = Path(parent, name)
                if path.is_symlink() or not path.is_file():
                    raise CandidateBroken(f"{path} is not an ordinary file")
                data = path.read_bytes()
                found[path.relative_to(project).as_posix()] = data
                if len(data) > 4 * MAX_FILE_CHARS or len(found) > MAX_FILES:
                    raise CandidateBroken("the candidate has grown beyond what a person reviews")
        return found

    def discard(self, candidate_id: str) -> Candidate | None:
        """Remove the files and keep the record. A candidate that cannot be read is removed whole: returns None."""
        try:
            candidate = self.get(candidate_id).closed(CandidateState.DISCARDED)
        except CandidateBroken:
            self._remove(candidate_id)
            return None
        self.put(candidate)
        shutil.rmtree(self.project(candidate_id), ignore_errors=True)
        return candidate

    def _remove(self, candidate_id: str) -> None:
        place = self._place(candidate_id)
        try:
            shutil.rmtree(place)
        except OSError as error:
            raise CandidateBroken(f"{place} cannot be removed: {error}", hint="remove it by hand") from error

    def _found(self) -> dict[str, Candidate | CandidateBroken]:
        if not self._folder.is_dir():
            return {}
        found: dict[str, Candidate | CandidateBroken] = {}
        for path in sorted(self._folder.iterdir()):
            if path.name[0] == ".":
                continue
            try:
                found[path.name] = self._read(path / _RECORD)
            except CandidateBroken as error:
                found[path.name] = error
        return found

    def _place(self, candidate_id: str) -> Path:
        return self._folder / Ulid.parse(candidate_id)

    def _read(self, path: Path) -> Candidate:
        try:
            with path.open("rb") as file:
                raw = file.read(_MAX_RECORD_BYTES + 1)
            if len(raw) > _MAX_RECORD_BYTES:
                raise CandidateBroken(f"{path} has more than {_MAX_RECORD_BYTES} bytes")
            candidate = msgspec.json.decode(raw, type=Candidate)
        except (OSError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise CandidateBroken(f"{path} cannot be read: {error}") from error
        if candidate.candidate_version != CANDIDATE_VERSION or candidate.id != path.parent.name:
            raise CandidateBroken(f"{path} is not a candidate's record")
        return candidate


def _encoded(candidate: Candidate) -> bytes:
    raw = msgspec.json.encode(candidate)
    if len(raw) > _MAX_RECORD_BYTES:
        hint = "describe it more briefly, or have the generator write fewer notes"
        raise CandidateBroken(f"the candidate's record would have {len(raw)} bytes", hint=hint)
    return raw
