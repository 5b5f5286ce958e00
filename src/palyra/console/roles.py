"""What a person may do on the console, as policy says. Each role includes those before it."""

from enum import StrEnum


class Role(StrEnum):
    VIEWER = "viewer"
    """See the pages."""
    OPERATOR = "operator"
    """Decide approvals, skills, devices, workers and browsers; verify and hand out the journal."""
    ADMIN = "admin"
    """Make and end tokens."""


ACTION_OF: dict[Role, str] = {
    Role.VIEWER: "console.view",
    Role.OPERATOR: "console.operate",
    Role.ADMIN: "console.administer",
}
HIGHEST_FIRST = (Role.ADMIN, Role.OPERATOR, Role.VIEWER)


def includes(role: Role, wanted: Role) -> bool:
    return HIGHEST_FIRST.index(role) <= HIGHEST_FIRST.index(wanted)
