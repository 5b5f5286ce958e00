"""Deletes archives that no version needs, and what killed processes left half written.

Others may be putting an archive there whose row comes next. So who sweeps holds the folder alone, from the look at the
tables to the last deletion.
"""

import asyncio
import logging

from palyra.skills.sqlite_skills import InstalledSkillsIndex
from palyra.skills.store import HELD_SECONDS, ArtifactFiles, ArtifactsUnusable

_LOG = logging.getLogger("palyra.skills")


class Sweeping:
    def __init__(self, files: ArtifactFiles, index: InstalledSkillsIndex) -> None:
        self._files = files
        self._index = index
        self._swept = False

    async def one(self, digest: str) -> None:
        """Deletes an archive that no version needs (any more)."""
        if not self._files.is_there():
            return
        try:
            async with self._files.held(alone=True):
                if digest not in await asyncio.to_thread(self._index.digests_kept):
                    await asyncio.to_thread(self._files.delete, digest)
        except ArtifactsUnusable as error:
            # The next process that opens the registry will find it.
            _LOG.warning("an archive that nobody needs stays: %s", error.message)

    async def everything(self, patience: float = HELD_SECONDS) -> bool:
        """Deletes what no version needs and what was half written; False where it could not be looked at in time."""
        if not self._files.is_there():
            return True
        try:
            async with self._files.held(alone=True, patience=patience):
                needed = await asyncio.to_thread(self._index.digests_known)
                await asyncio.to_thread(self._files.sweep, needed)
        except (ArtifactsUnusable, OSError) as error:
            _LOG.info("archives that nobody needs may stay: %s", error)
            return False
        return True

    async def at_first(self) -> None:
        """What a process left behind that was killed. Waits for nobody: where others write, the next look does it."""
        if not self._swept:
            self._swept = await self.everything(0)
