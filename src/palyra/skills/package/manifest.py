"""``skill.toml``: who a skill is, which tools it offers and what it asks for.

Read strictly: unknown keys, over-long values and wildcards without opt-in are refused with the line named. What the
manifest does not ask for, the skill does not get.
"""

import re
import tomllib
from enum import StrEnum
from functools import total_ordering
from typing import Any, Final, Self

import msgspec

from palyra.canonical import NotCanonical, canonical_json
from palyra.config.toml_lines import TomlRefused, lines_of
from palyra.errors import InvalidInput
from palyra.ids import ToolName
from palyra.json_schema import InvalidSchema, SchemaCheck, SchemaMismatch
from palyra.skills import limits as most
from palyra.skills.package.capabilities import Capabilities, read_capabilities
from palyra.skills.package.toml_reader import (
    Form,
    MalformedManifest,
    ManifestTable,
    invisible_in,
)
from palyra.strict_json import NotStrictJson, parse_strict

# Versions: Semantic Versioning 2.0.0 without build metadata, so that equal versions have one spelling.

MAX_VERSION_CHARS: Final = 64
_NUMBER: Final = r"(0|[1-9][0-9]{0,8})"
_IDENTIFIER: Final = r"(?:0|[1-9][0-9]*|[0-9]*[A-Za-z-][0-9A-Za-z-]*)"
_VERSION: Final = re.compile(rf"{_NUMBER}\.{_NUMBER}\.{_NUMBER}(?:-({_IDENTIFIER}(?:\.{_IDENTIFIER})*))?", re.ASCII)


class MalformedVersion(InvalidInput):
    code = "skill.malformed_version"
    hint = "write MAJOR.MINOR.PATCH or MAJOR.MINOR.PATCH-PRERELEASE, without build metadata"


@total_ordering
class Version(msgspec.Struct, frozen=True, eq=True):
    major: int
    minor: int
    patch: int
    prerelease: tuple[str, ...] = ()

    @classmethod
    def parse(cls, raw: str) -> Self:
        found = _VERSION.fullmatch(raw) if len(raw) <= MAX_VERSION_CHARS else None
        if found is None:
            raise MalformedVersion(f"{raw[:MAX_VERSION_CHARS]!r} is not a version such as 1.0.0")
        major, minor, patch, prerelease = found.groups()
        return cls(int(major), int(minor), int(patch), tuple(prerelease.split(".")) if prerelease else ())

    def __str__(self) -> str:
        core = f"{self.major}.{self.minor}.{self.patch}"
        return f"{core}-{'.'.join(self.prerelease)}" if self.prerelease else core

    def __lt__(self, other: object) -> bool:
        return self._order() < other._order() if isinstance(other, Version) else NotImplemented

    def _order(self) -> tuple[int, int, int, bool, tuple[tuple[bool, int, str], ...]]:
        """Order a release after its prereleases, and numbers before words, and by value."""
        parts = tuple((not part.isdigit(), int(part) if part.isdigit() else 0, part) for part in self.prerelease)
        return self.major, self.minor, self.patch, not self.prerelease, parts


MANIFEST_VERSION: Final = 1
MANIFEST_NAME: Final = "skill.toml"
_WORD: Final = r"[a-z0-9][a-z0-9_-]*"
SKILL_ID: Final = Form(re.compile(rf"[a-z][a-z0-9_-]*(?:\.{_WORD})*"), "lower-case words joined by dots")
# Without dots: the last word of a tool's name in the catalog is the tool, everything before it the skill.
_TOOL_ID: Final = Form(re.compile(_WORD), "a lower-case word without dots")
PUBLISHER: Final = Form(
    re.compile(r"[a-z0-9](?:[a-z0-9.-]*[a-z0-9])?"), "lower-case letters, digits, dots and dashes, such as acme"
)
_MODULE: Final = Form(
    re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*(?:\.[A-Za-z0-9_-]+)*\.wasm"), "the name of a file that ends in .wasm"
)
_LINK: Final = Form(re.compile(r"https://[\x21-\x7e]+"), "a link that begins with https://")
_CONTACT: Final = Form(
    re.compile(r"(?:mailto:[\x21-\x7e]+@[\x21-\x7e]+)|(?:https://[\x21-\x7e]+)"),
    "a link that begins with mailto: or https://",
)


class ToolRisk(StrEnum):
    """The harm that a mistaken call could do, in the author's view. An operator and policy may disagree."""

    LOW = "low"
    MEDIUM = "medium"
    HIGH = "high"


class SkillAbi(StrEnum):
    CORE = "core"
    COMPONENT = "component"


class SkillTool(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    title: str
    description: str
    module: str
    input_schema: dict[str, Any]
    output_schema: dict[str, Any]
    risk: ToolRisk = ToolRisk.MEDIUM
    idempotent: bool = False


class Compatibility(msgspec.Struct, frozen=True, kw_only=True):
    min_palyra_version: str = ""
    abi: SkillAbi | None = None


class TrustWishes(msgspec.Struct, frozen=True, kw_only=True):
    """Wishes of the publisher that can only make trust stricter."""

    review_required: bool = True
    requires_allowlisted_publisher: bool = False
    security_contact: str = ""


class OperatorNotes(msgspec.Struct, frozen=True, kw_only=True):
    summary: str = ""
    documentation: str = ""
    tags: tuple[str, ...] = ()
    configuration_schema: dict[str, Any] | None = None
    configuration_defaults: dict[str, Any] = {}


class SkillManifest(msgspec.Struct, frozen=True, kw_only=True):
    skill_id: str
    name: str
    version: str
    publisher: str
    description: str
    license: str
    tools: tuple[SkillTool, ...]
    capabilities: Capabilities
    compat: Compatibility
    trust: TrustWishes
    operator: OperatorNotes

    def tool_name(self, tool: SkillTool) -> ToolName:
        return ToolName(f"skill.{self.skill_id}.{tool.id}")

    def modules(self) -> tuple[str, ...]:
        """Name the modules that tools run in, without repetition."""
        return tuple(dict.fromkeys(tool.module for tool in self.tools))


def parse_manifest(raw: bytes) -> SkillManifest:
    if len(raw) > most.MAX_MANIFEST_BYTES:
        raise MalformedManifest(f"{MANIFEST_NAME} is larger than {most.MAX_MANIFEST_BYTES} bytes")
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise MalformedManifest(f"line {line}: not UTF-8", line=line) from error
    try:
        lines = lines_of(text)
        tree = tomllib.loads(text)
    except TomlRefused as refused:
        raise MalformedManifest(str(refused), line=refused.line) from None
    except (tomllib.TOMLDecodeError, RecursionError, ValueError) as error:
        raise _syntax_error(text, error) from error
    return _read(ManifestTable(tree, lines))


def _syntax_error(text: str, error: Exception) -> MalformedManifest:
    found = re.search(r"\(at line (\d+), column (\d+)\)", str(error))
    # Without a place it is the end of the document.
    line = int(found.group(1)) if found else text.count("\n") + 1
    return MalformedManifest(f"line {line}: not TOML: {str(error).partition(' (at ')[0]}", line=line)


def _read(top: ManifestTable) -> SkillManifest:
    # Before anything else: a later format may mean something else by every other key.
    version = top.integer("manifest_version", least=0, most=2**31)
    if version is None:
        top.refuse(f"manifest_version is missing: write manifest_version = {MANIFEST_VERSION}")
    if version != MANIFEST_VERSION:
        top.refuse(
            f"manifest_version is {version}; this version of Palyra reads {MANIFEST_VERSION}", "manifest_version"
        )
    skill_id = top.text("skill_id", most=most.MAX_SKILL_ID_CHARS, form=SKILL_ID)
    name = top.text("name", most=most.MAX_NAME_CHARS)
    release = top.parsed("version", top.text("version", most=most.MAX_NAME_CHARS), Version.parse)
    publisher = top.text("publisher", most=most.MAX_PUBLISHER_CHARS, form=PUBLISHER)
    description = top.text("description", most=most.MAX_SUMMARY_CHARS, default="")
    licence = top.text("license", most=most.MAX_NAME_CHARS, default="")
    tools = _read_tools(top.table("entrypoints"))
    capabilities = read_capabilities(top.table("capabilities"), skill_id)
    compat = _read_compat(top.table("compat"))
    trust = _read_trust(top.table("trust"))
    operator = _read_operator(top.table("operator"))
    top.finish()
    return SkillManifest(
        skill_id=skill_id,
        name=name,
        version=str(release),
        publisher=publisher,
        description=description,
        license=licence,
        tools=tools,
        capabilities=capabilities,
        compat=compat,
        trust=trust,
        operator=operator,
    )


def _read_tools(entrypoints: ManifestTable) -> tuple[SkillTool, ...]:
    tools: list[SkillTool] = []
    for table in entrypoints.tables("tools", most=most.MAX_TOOLS):
        tool = _read_tool(table)
        if any(other.id == tool.id for other in tools):
            table.refuse(f"two tools have the id {tool.id!r}", "id")
        tools.append(tool)
    if not tools:
        entrypoints.refuse("a skill offers at least one tool: write [[entrypoints.tools]]")
    entrypoints.finish()
    return tuple(tools)


def _read_tool(table: ManifestTable) -> SkillTool:
    tool_id = table.text("id", most=most.MAX_TOOL_ID_CHARS, form=_TOOL_ID)
    tool = SkillTool(
        id=tool_id,
        title=table.text("title", most=most.MAX_NAME_CHARS, default=tool_id),
        description=table.text("description", most=most.MAX_DESCRIPTION_CHARS),
        module=table.text("module", most=most.MAX_NAME_CHARS, form=_MODULE),
        input_schema=_read_schema(table, "input_schema", required=True) or {},
        output_schema=_read_schema(table, "output_schema", required=True) or {},
        risk=ToolRisk(_one_of(table, "risk", ToolRisk, ToolRisk.MEDIUM)),
        idempotent=table.flag("idempotent", False),
    )
    table.finish()
    return tool


def _read_compat(table: ManifestTable) -> Compatibility:
    least = table.text("min_palyra_version", most=most.MAX_NAME_CHARS, default="")
    if least:
        table.parsed("min_palyra_version", least, Version.parse)
    abi = _one_of(table, "abi", SkillAbi, "")
    table.finish()
    return Compatibility(min_palyra_version=least, abi=SkillAbi(abi) if abi else None)


def _read_trust(table: ManifestTable) -> TrustWishes:
    if not table.flag("review_required", True):
        table.refuse("no skill excuses itself from review: a person approves every version", "review_required")
    wishes = TrustWishes(
        requires_allowlisted_publisher=table.flag("requires_allowlisted_publisher", False),
        security_contact=table.text("security_contact", most=most.MAX_LINK_CHARS, form=_CONTACT, default=""),
    )
    table.finish()
    return wishes


def _read_operator(table: ManifestTable) -> OperatorNotes:
    configuration = table.table("configuration")
    schema = _read_schema(configuration, "schema", required=False)
    defaults = configuration.raw("defaults")
    if defaults is not None:
        defaults = _json_table(configuration, "defaults", defaults)
        if schema is None:
            configuration.refuse("defaults without a schema to judge them by", "defaults")
        _require_fit(configuration, schema, defaults)
    configuration.finish()
    notes = OperatorNotes(
        summary=table.text("summary", most=most.MAX_SUMMARY_CHARS, default=""),
        documentation=table.text("documentation", most=most.MAX_LINK_CHARS, form=_LINK, default=""),
        tags=table.texts("tags", most=most.MAX_TAGS, each=most.MAX_TAG_CHARS),
        configuration_schema=schema,
        configuration_defaults=defaults or {},
    )
    table.finish()
    return notes


def _require_fit(table: ManifestTable, schema: dict[str, Any], defaults: dict[str, Any]) -> None:
    """Defaults may leave out what an operator has to say; what they say must fit."""
    partial = {key: value for key, value in schema.items() if key not in ("required", "minProperties")}
    try:
        SchemaCheck(partial).require(defaults)
    except SchemaMismatch as mismatch:
        table.refuse(f"defaults do not fit the schema: {mismatch.message}", "defaults")


def _one_of(table: ManifestTable, key: str, words: type[StrEnum], default: str) -> str:
    value = table.text(key, most=most.MAX_NAME_CHARS, default=default)
    if value and value not in set(words):
        table.refuse(f"{key} is {value!r}; it must be one of {', '.join(words)}", key)
    return value


def _read_schema(table: ManifestTable, key: str, *, required: bool) -> dict[str, Any] | None:
    """Read a JSON Schema as a TOML table, or as a string of JSON."""
    value = table.raw(key)
    if value is None:
        if required:
            table.refuse(f"{key} is missing: a tool says what it takes and what it returns")
        return None
    schema = _json_table(table, key, value)
    try:
        SchemaCheck(schema)
    except InvalidSchema as error:
        table.refuse(f"{key}: {error.message}", key)
    if schema.get("type") != "object":
        table.refuse(f'{key} must describe an object: "type" = "object"', key)
    return schema


def _json_table(table: ManifestTable, key: str, value: Any) -> dict[str, Any]:
    if isinstance(value, str):
        try:
            value = parse_strict(value, any_number_spelling=True)
        except NotStrictJson as error:
            table.refuse(f"{key}: {error.message}", key)
    if not isinstance(value, dict):
        table.refuse(f"{key} is neither a table nor a string with a JSON object", key)
    try:
        size = len(canonical_json(value))
    except (NotCanonical, TypeError, ValueError):
        table.refuse(f"{key} holds something that JSON does not have, such as a date", key)
    odd = invisible_in(value)
    if odd:
        table.refuse(f"{key} has the invisible character U+{ord(odd):04X}", key)
    if size > most.MAX_SCHEMA_BYTES:
        table.refuse(f"{key} has {size} bytes as JSON; at most {most.MAX_SCHEMA_BYTES} are allowed", key)
    return value
