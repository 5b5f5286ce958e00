"""The bounds of a manifest. A manifest is read by a person before it is approved: it must stay readable."""

from palyra.limits import KIB, MAX_CALL_TIMEOUT_MS, MIB

MAX_MANIFEST_BYTES = 256 * KIB
# `skill.<skill_id>.<tool_id>` has to stay a tool name of at most 128 characters.
MAX_SKILL_ID_CHARS = 72
MAX_TOOL_ID_CHARS = 48
MAX_PUBLISHER_CHARS = 64
MAX_NAME_CHARS = 80
MAX_SUMMARY_CHARS = 1_000
# A tool's description is read by a model with each list of tools.
MAX_DESCRIPTION_CHARS = 2_000
MAX_LINK_CHARS = 300
MAX_TAGS = 16
MAX_TAG_CHARS = 40
MAX_TOOLS = 64
MAX_SCHEMA_BYTES = 32 * KIB
# Lists of capabilities: each entry is something an operator has to judge.
MAX_LISTED_CAPABILITIES = 32
MAX_CAPABILITY_CHARS = 260

# Quotas a skill may ask for; what it gets is also bounded by the runtime's own limits.
MAX_FUEL_BUDGET = 100_000_000_000
MAX_MEMORY_BYTES = 64 * MIB
MAX_TIMEOUT_MS = MAX_CALL_TIMEOUT_MS
MAX_STORAGE_BYTES = 64 * MIB
MAX_HTTP_REQUESTS = 1_000
