"""The bounds of limits.py and manifest_limits.py fit each other, the runtime's and the rest of Palyra's."""

from palyra.limits import MAX_HTTP_BODY_BYTES, MAX_TOOL_NAME_CHARS
from palyra.skills import limits
from palyra.skills import limits as manifest_limits
from palyra.vault.limits import MAX_REF_CHARS
from palyra.wasm.domain.limits import MAX_GRANTS_PER_KIND, RuntimeLimits


def test_a_module_fits_an_archive_and_the_runtime() -> None:
    assert limits.MAX_ENTRY_BYTES <= limits.MAX_MODULE_BYTES < limits.MAX_ARTIFACT_BYTES
    assert limits.MAX_MEMORY_BYTES == RuntimeLimits().max_memory_bytes == manifest_limits.MAX_MANIFEST_MEMORY_BYTES


def test_the_longest_names_stay_names_elsewhere() -> None:
    tool = "skill." + "a" * manifest_limits.MAX_SKILL_ID_CHARS + "." + "b" * manifest_limits.MAX_TOOL_ID_CHARS
    assert len(tool) <= MAX_TOOL_NAME_CHARS
    assert len("skill:") + manifest_limits.MAX_SKILL_ID_CHARS < MAX_REF_CHARS
    assert manifest_limits.MAX_LISTED_CAPABILITIES <= MAX_GRANTS_PER_KIND


def test_a_configuration_fits_a_request() -> None:
    assert 6 * limits.MAX_CONFIGURATION_BYTES < MAX_HTTP_BODY_BYTES
