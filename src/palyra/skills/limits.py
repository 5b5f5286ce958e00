"""The bounds of artifacts, audit and registry, each with its reason. Those of the manifest have their own module."""

from palyra.limits import KIB, MAX_CALL_TIMEOUT_MS, MIB
from palyra.wasm.domain import limits as wasm

# What a person downloads and reviews as one thing.
MAX_ARTIFACT_BYTES = 64 * MIB
# Assets, manifest, SBOM, provenance, signature.
MAX_ENTRY_BYTES = 16 * MIB
# The smallest Python component has 18 MiB: a module may be as large as the runtime takes.
MAX_MODULE_BYTES = wasm.MAX_MODULE_BYTES
MAX_ENTRIES = 256
MAX_MODULES = 16
# A name is printed in findings and stands in listings.
MAX_ENTRY_NAME_CHARS = 200
# An SBOM of a Python component lists a few hundred packages.
MAX_STATEMENT_BYTES = 4 * MIB
# Envelope with an identity and two digests.
MAX_SIGNATURE_BYTES = 16 * KIB

# Audit. Text that a person reads through: more of one kind is summed up in its last finding.
MAX_FINDINGS_PER_RULE = 20
MAX_EVIDENCE_CHARS = 300
# Places that look like the beginning of an address, or of one kind of credential, in a whole archive. An interpreter's
# library has a few thousand; looking at as many addresses as this takes about a second.
MAX_AUDITED_PLACES = 100_000
# Above these a request for capabilities deserves a second look.
MANY_HOSTS = 8
MANY_SECRETS = 4
MANY_CHANNELS = 4
MANY_ROOTS = 8
# What the runtime gives a skill at most; a module that declares more will not start.
MAX_MEMORY_BYTES = wasm.RuntimeLimits().max_memory_bytes
MAX_TABLE_ELEMENTS = wasm.RuntimeLimits().max_table_elements
# `run`, its allocator, `memory` and what toolchains add; beyond it there is an interface nobody declared.
MANY_EXPORTS = 64

# Registry. Versions of one skill that are kept for a rollback; older superseded ones must be removed by a person.
MAX_VERSIONS_KEPT = 32
MAX_SKILLS = 1_000
MAX_KEYS_PER_PUBLISHER = 16
MAX_PUBLISHERS = 1_000
# Entries of a skill's history that are shown; the journal has all of them.
MAX_HISTORY_SHOWN = 200
# A configuration is typed by an operator and handed to a guest with each call.
MAX_CONFIGURATION_BYTES = 64 * KIB
MAX_REASON_CHARS = 1024
# Uploads judged at once: each holds an archive and its copy in memory.
MAX_JUDGED_AT_ONCE = 2


# The bounds of a manifest. A manifest is read by a person before it is approved: it must stay readable.

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
MAX_MANIFEST_MEMORY_BYTES = 64 * MIB
MAX_TIMEOUT_MS = MAX_CALL_TIMEOUT_MS
MAX_STORAGE_BYTES = 64 * MIB
MAX_HTTP_REQUESTS = 1_000
