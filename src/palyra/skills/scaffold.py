"""A new project from a template: the names that go into it, and the text with them filled in."""

import re
from collections.abc import Mapping
from typing import Final

import msgspec

from palyra.errors import InvalidInput
from palyra.skills.manifest import PUBLISHER, SKILL_ID
from palyra.skills.manifest_limits import MAX_NAME_CHARS, MAX_PUBLISHER_CHARS, MAX_SKILL_ID_CHARS

TEMPLATE_SUFFIX: Final = ".in"
DEFAULT_PUBLISHER: Final = "local"
# Names that archives and version control would not carry as they are.
_RENAMED: Final = {"gitignore": ".gitignore"}
_WORD: Final = re.compile(r"@([A-Z]+)@")


class BadSkillName(InvalidInput):
    code = "skill.bad_name"
    hint = "a skill's id is lower-case words joined by dots, such as acme.notes"


class ProjectNames(msgspec.Struct, frozen=True, kw_only=True):
    skill_id: str
    publisher: str
    module: str
    name: str


def require_publisher(name: str) -> None:
    if not PUBLISHER.pattern.fullmatch(name) or len(name) > MAX_PUBLISHER_CHARS:
        raise BadSkillName(
            f"a publisher cannot be named {name[:MAX_NAME_CHARS]!r}", hint=f"a publisher is {PUBLISHER.words}"
        )


def project_names(skill_id: str, publisher: str = DEFAULT_PUBLISHER) -> ProjectNames:
    if not SKILL_ID.pattern.fullmatch(skill_id) or len(skill_id) > MAX_SKILL_ID_CHARS:
        raise BadSkillName(f"a skill cannot be named {skill_id[:MAX_NAME_CHARS]!r}")
    require_publisher(publisher)
    word = skill_id.rpartition(".")[2]
    name = word.replace("-", " ").replace("_", " ").strip().capitalize()
    return ProjectNames(skill_id=skill_id, publisher=publisher, module=f"{word}.wasm", name=name)


def fill(template: Mapping[str, str], names: ProjectNames) -> dict[str, str]:
    """The files of a project. A word that the template does not know is a mistake in the template."""
    words = {"ID": names.skill_id, "PUBLISHER": names.publisher, "MODULE": names.module, "NAME": names.name}
    filled = {}
    for path, text in template.items():
        folder, slash, last = path.removesuffix(TEMPLATE_SUFFIX).rpartition("/")
        filled[f"{folder}{slash}{_RENAMED.get(last, last)}"] = _WORD.sub(lambda found: words[found.group(1)], text)
    return filled
