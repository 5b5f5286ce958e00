"""A trial of a skill before it is installed: its grants, and the comparison of an example with its result."""

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from palyra.errors import Failed, InvalidInput
from palyra.json_schema import SchemaCheck, SchemaMismatch
from palyra.limits import DEFAULT_CALL_TIMEOUT_MS
from palyra.skills.build.project import Example
from palyra.skills.package.capabilities import Capabilities
from palyra.skills.package.configuration import configure_input, effective_configuration
from palyra.skills.package.manifest import SkillManifest, SkillTool
from palyra.strict_json import NotStrictJson, parse_strict
from palyra.wasm.domain.grants import Capability, CapabilityGrantSet
from palyra.wasm.domain.limits import RuntimeLimits

ALL: Final = "all"
# Without a word these are granted: both stay within the project's folder.
HARMLESS: Final = (Capability.STORAGE, Capability.CHANNEL)


class NotRequested(InvalidInput):
    code = "skill.not_asked_for"
    hint = "grants are KIND or KIND:NAME of http, secret, storage, channel, or all; skill.toml has to ask for each"


class NoSuchTool(InvalidInput):
    code = "skill.no_such_tool"
    hint = "tools are those of skill.toml; name one with --tool"


class BadTrialInput(InvalidInput):
    code = "skill.bad_input"
    hint = "the input is a JSON object that fits the tool's input_schema"


class BadTrialOutput(Failed):
    code = "skill.bad_output"
    hint = "the output is a JSON object that fits the tool's output_schema"


class ExamplesFailed(Failed):
    code = "skill.examples_failed"
    hint = "`palyra skill test` in the project's folder shows what went wrong"


def requested_names(asked: Capabilities) -> dict[Capability, tuple[str, ...]]:
    roots = dict.fromkeys((*asked.filesystem.read_roots, *asked.filesystem.write_roots))
    return {
        Capability.HTTP: asked.http_egress_allowlist,
        Capability.SECRET: asked.secrets,
        Capability.STORAGE: tuple(roots),
        Capability.CHANNEL: asked.channels,
    }


def trial_grants(asked: Capabilities, words: Sequence[str]) -> CapabilityGrantSet:
    """Grant no more than the manifest asks for: what works in a trial has to work once it is installed."""
    names = requested_names(asked)
    granted: dict[Capability, list[str]] = {kind: [] for kind in Capability}
    for word in words or HARMLESS:
        kind_word, colon, name = str(word).partition(":")
        if word == ALL:
            for kind in Capability:
                granted[kind] += names[kind]
            continue
        if kind_word not in set(Capability):
            raise NotRequested(f"there is no kind of grant {kind_word[:80]!r}")
        kind = Capability(kind_word)
        matching = [one for one in names[kind] if not colon or name in (one, one.rpartition("/")[2])]
        if colon and not matching:
            raise NotRequested(f"skill.toml does not ask for {word[:200]!r}")
        granted[kind] += matching
    return CapabilityGrantSet(
        http_hosts=tuple(granted[Capability.HTTP]),
        secret_keys=tuple(granted[Capability.SECRET]),
        storage_prefixes=tuple(granted[Capability.STORAGE]),
        channels=tuple(granted[Capability.CHANNEL]),
        revealable_secrets=tuple(set(asked.reveal_secrets) & set(granted[Capability.SECRET])),
        # The same for every trial: an example that passed once passes again.
        random_seed=hashlib.sha256(b"palyra.skill.trial").digest(),
    )


def describe_grants(grants: CapabilityGrantSet) -> list[str]:
    return [f"{kind}:{grant.name} as handle {grant.handle}" for kind in Capability for grant in grants.handles(kind)]


def trial_limits(asked: Capabilities) -> tuple[RuntimeLimits, int]:
    """Convert the quotas of the manifest to limits, and the deadline in milliseconds."""
    quotas = asked.quotas
    usual = RuntimeLimits()
    limits = msgspec.structs.replace(
        usual,
        fuel_budget=quotas.fuel_budget or usual.fuel_budget,
        max_memory_bytes=quotas.max_memory_bytes or usual.max_memory_bytes,
    )
    return limits, quotas.timeout_ms or DEFAULT_CALL_TIMEOUT_MS


def choose_tool(manifest: SkillManifest, tool_id: str | None) -> SkillTool:
    ids = [tool.id for tool in manifest.tools]
    if tool_id is None and len(ids) == 1:
        return manifest.tools[0]
    for tool in manifest.tools:
        if tool.id == tool_id:
            return tool
    asked = "which tool is meant?" if tool_id is None else f"there is no tool {tool_id[:80]!r}:"
    raise NoSuchTool(f"{asked} skill.toml has {', '.join(ids)}")


def check_input(manifest: SkillManifest, tool: SkillTool, value: Any, configured: Any = None) -> bytes:
    """Encode the input as the daemon does: with the configuration beside it, if the manifest has one."""
    if not isinstance(value, dict):
        raise BadTrialInput("the input is JSON, but not an object")
    try:
        SchemaCheck(tool.input_schema).require(value)
    except SchemaMismatch as mismatch:
        raise BadTrialInput(f"the input of {tool.id} does not fit its schema: {mismatch.message}") from mismatch
    if not isinstance(configured or {}, dict):
        raise BadTrialInput("the configuration is JSON, but not an object")
    configuration = effective_configuration(manifest, configured or {})
    return msgspec.json.encode(configure_input(manifest, value, configuration))


def check_output(tool: SkillTool, output: bytes | int) -> Any:
    """Read the output as a value. A number is the exit code of the minimal form, which has no schema to fit."""
    if isinstance(output, int):
        return output
    try:
        value = parse_strict(output, any_number_spelling=True)
    except NotStrictJson as error:
        raise BadTrialOutput(f"{tool.id} returned something that is not JSON: {error.message}") from error
    try:
        SchemaCheck(tool.output_schema).require(value)
    except SchemaMismatch as mismatch:
        raise BadTrialOutput(f"the output of {tool.id} does not fit its schema: {mismatch.message}") from mismatch
    return value


def shortcomings(
    example: Example,
    *,
    output: Any,
    error: str | None,
    stored: Mapping[str, bytes],
    messages: Sequence[tuple[str, str]],
    unused: int,
) -> list[str]:
    """List the differences between the example and the result."""
    found = []
    if example.error is not None:
        if error is None:
            found.append(f"it should have failed with {example.error!r}, and returned {_spelled(output)}")
        elif example.error not in error:
            found.append(f"it should have failed with {example.error!r}, and failed with {error!r}")
    elif error is not None:
        found.append(f"it failed: {error}")
    elif output != example.output:
        found.append(f"expected {_spelled(example.output)}, got {_spelled(output)}")
    if example.storage_after is not None:
        after = {name: data.decode("utf-8", "replace") for name, data in stored.items()}
        if after != example.storage_after:
            found.append(f"expected the storage {_spelled(example.storage_after)}, got {_spelled(after)}")
    if example.messages is not None and tuple(messages) != example.messages:
        found.append(f"expected the messages {_spelled(example.messages)}, got {_spelled(messages)}")
    if unused:
        found.append(f"{unused} of the expected requests were not made")
    return found


def _spelled(value: Any) -> str:
    return msgspec.json.encode(value).decode("utf-8")
