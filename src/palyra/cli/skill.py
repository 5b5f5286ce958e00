"""``palyra skill``: signed WebAssembly tools, from a file to the catalog. Each verb is imported when it is called."""

from typing import Final

import click

from palyra.cli.lazy import LazyCommand, LazyGroup

VERBS: Final = {
    "new": LazyCommand("palyra.cli.skill_author:new", "Begin a skill from a template."),
    "build": LazyCommand("palyra.cli.skill_author:build", "Compile and pack a skill's project."),
    "run": LazyCommand("palyra.cli.skill_try:run", "Run a tool of a project on this machine."),
    "test": LazyCommand("palyra.cli.skill_try:test", "Run a project's examples."),
    "keygen": LazyCommand("palyra.cli.skill_author:keygen", "Make a publisher's key."),
    "sign": LazyCommand("palyra.cli.skill_author:sign", "Sign the archive of the last build."),
    "builder": LazyCommand("palyra.cli.skill_builder:builder", "Make skills from descriptions and recorded runs."),
    "verify": LazyCommand("palyra.cli.skill_review:verify", "Verify an archive's signature and statements."),
    "audit": LazyCommand("palyra.cli.skill_review:audit", "Show what an audit finds in an archive or a skill."),
    "install": LazyCommand("palyra.cli.skill_life:install", "Put an archive into quarantine."),
    "list": LazyCommand("palyra.cli.skill_review:list_skills", "List skills and their versions."),
    "show": LazyCommand("palyra.cli.skill_review:show", "Show a skill with all a review needs, and its history."),
    "approve": LazyCommand("palyra.cli.skill_life:approve", "Put exactly one version of a skill in use."),
    "disable": LazyCommand("palyra.cli.skill_life:disable", "Stop the version in use."),
    "enable": LazyCommand("palyra.cli.skill_life:enable", "Let the disabled version run again."),
    "quarantine": LazyCommand("palyra.cli.skill_life:quarantine", "Take a version out of use until it is approved."),
    "rollback": LazyCommand("palyra.cli.skill_life:rollback", "Go back to a version that was in use."),
    "remove": LazyCommand("palyra.cli.skill_life:remove", "Remove a version or a whole skill."),
    "purge": LazyCommand("palyra.cli.skill_life:purge", "Erase what a removed skill has stored."),
    "configure": LazyCommand("palyra.cli.skill_life:configure", "Set a skill's configuration."),
    "trust": LazyCommand("palyra.cli.skill_trust:trust", "Say whose keys are trusted."),
}


@click.group(cls=LazyGroup, table=VERBS)
def skill() -> None:
    """Install, review and approve signed WebAssembly tools.

    Installing is not enabling: a version runs after an operator has approved exactly its id, version and digest. An
    upgrade leaves the old version in use until then.
    """
