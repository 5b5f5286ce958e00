"""A skill's configuration: what an operator sets, judged by the schema of the version in use.

Values an operator does not set come from the manifest's defaults. A configuration is no place for secrets: those go
into the vault, in the skill's scope.
"""

from typing import Any, Final

from palyra.canonical import canonical_json
from palyra.errors import InvalidInput
from palyra.journal.redaction import names_a_secret
from palyra.json_schema import SchemaCheck, SchemaMismatch
from palyra.skills.limits import MAX_CONFIGURATION_BYTES
from palyra.skills.package.manifest import SkillManifest

# What an operator set comes to the guest as this member of its input. A caller cannot set it.
CONFIGURATION_KEY: Final = "_config"


class ConfigurationGiven(InvalidInput):
    code = "wasm.configuration_given"
    hint = "_config is what an operator configured, and only skills that have a configuration get it: leave it out"


class ConfigurationRefused(InvalidInput):
    code = "skill.configuration_refused"
    hint = "`palyra skill show SKILL` prints the configuration schema of each version"


def effective_configuration(manifest: SkillManifest, chosen: dict[str, Any]) -> dict[str, Any]:
    """Defaults with what was chosen over them, key by key at the top level; raises where the whole does not fit."""
    whole = {**manifest.operator.configuration_defaults, **chosen}
    schema = manifest.operator.configuration_schema
    if schema is None:
        if whole:
            raise ConfigurationRefused(f"{manifest.skill_id} {manifest.version} has nothing to configure")
        return {}
    size = len(canonical_json(whole))
    if size > MAX_CONFIGURATION_BYTES:
        raise ConfigurationRefused(f"the configuration has {size} bytes; at most {MAX_CONFIGURATION_BYTES} are allowed")
    try:
        SchemaCheck(schema).require(whole)
    except SchemaMismatch as mismatch:
        raise ConfigurationRefused(
            f"the configuration does not fit {manifest.skill_id} {manifest.version}: {mismatch.message}",
            where=mismatch.pointer,
        ) from mismatch
    return whole


def configure_input(
    manifest: SkillManifest, arguments: dict[str, Any], configuration: dict[str, Any]
) -> dict[str, Any]:
    """Return the arguments, and beside them the configuration if the skill has one.

    A caller's own configuration never reaches the guest: it is replaced, or refused if there is nothing to replace it
    with.
    """
    if manifest.operator.configuration_schema is not None:
        return {**arguments, CONFIGURATION_KEY: configuration}
    refuse_configuration(arguments)
    return arguments


def refuse_configuration(given: Any) -> None:
    """Refuse a caller's configuration, which a module would take for an operator's.

    Removed silently, it would leave the module to answer another question than was asked.
    """
    if isinstance(given, dict) and CONFIGURATION_KEY in given:
        raise ConfigurationGiven(f"the input has a member {CONFIGURATION_KEY}, and there is no configuration here")


def refuse_secrets(chosen: Any) -> None:
    """Text under a key that names a secret would be stored and shown in the clear, at whatever depth."""
    if isinstance(chosen, list):
        for item in chosen:
            refuse_secrets(item)
    if not isinstance(chosen, dict):
        return
    for key, value in chosen.items():
        if names_a_secret(key) and isinstance(value, str):
            raise ConfigurationRefused(
                f"{key!r} looks like a secret: put it into the vault as skill:SKILL_ID/{key}", key=key
            )
        refuse_secrets(value)
