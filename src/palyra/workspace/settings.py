"""The tree of settings: sections, keys, defaults, bounds, and one line on each.

The types are the single source: validation, ``palyra config show`` and the reference page are all read from them.
"""

from typing import Annotated, Final

import msgspec

from palyra.config.setting_types import Patterns, describe

# Read or run by a person's own programs once they open the workspace: an agent that writes them acts as that person.
PROTECTED_NAMES: Final = (
    ".git/hooks",
    ".git/config",
    ".gitmodules",
    ".env*",
    ".vscode",
    ".idea",
    ".devcontainer",
    ".husky",
    ".pre-commit-config.yaml",
    ".github/workflows",
    ".gitlab-ci.yml",
    ".circleci",
    "Jenkinsfile",
    ".mcp.json",
    ".npmrc",
    ".pypirc",
    ".netrc",
    ".ssh",
)


class WorkspaceSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    root: Annotated[
        str,
        describe("Folder that calls work in, which has to be there; empty means `workspace` in the state directory."),
    ] = ""
    protected_names: Annotated[Patterns, describe("Names beneath the root that no tool may write, as globs.")] = (
        PROTECTED_NAMES
    )
