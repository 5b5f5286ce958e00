"""The registry of skills as the settings want it."""

from palyra.config.settings import SkillsSettings
from palyra.config.state_dir import StateDir
from palyra.daemons.skill_storage import SkillFolders
from palyra.journal.sqlite import SqliteStore
from palyra.signing.ed25519 import Ed25519Verifier
from palyra.skills.registry import SkillRegistry
from palyra.skills.store import ArtifactFiles
from palyra.version import VERSION

ARTIFACTS = "skills/artifacts"


def make_skills(settings: SkillsSettings, *, store: SqliteStore, state: StateDir) -> SkillRegistry:
    """Nothing is read or made before it is first used."""
    return SkillRegistry(
        store=store,
        files=ArtifactFiles(state.path(ARTIFACTS)),
        data=SkillFolders(state),
        verifier_of=Ed25519Verifier.from_public_bytes,
        palyra_version=VERSION,
        trust_on_first_use=settings.trust_on_first_use,
    )
