"""Bounds of policy, each with its reason."""

from palyra.limits import KIB, MIB

# A thousand policies of ordinary length are some 200 KiB.
MAX_POLICY_FILE_BYTES = 1 * MIB
MAX_POLICY_FILES = 256
MAX_BUNDLE_BYTES = 8 * MIB
MAX_POLICIES = 20_000

# Cedar's parser is recursive and overflows the process's stack (a crash, not an error) at some 1,000 nested brackets,
# 5,000 nested conditionals or 50,000 chained operators. These stay an order of magnitude below.
MAX_NESTING = 64
MAX_CONDITIONALS_PER_POLICY = 64
MAX_TOKENS_PER_POLICY = 4_096
# Each condition in a chain is two levels of the parsed policy. Python itself reads some 1,000, more or fewer by its
# version and by how deep it is already; what can be in force must not depend on that.
MAX_POLICY_LEVELS = 800

# Past this many, more problems do not help the person who reads them.
MAX_PROBLEMS = 50
MAX_SHOWN_SOURCE_CHARS = 160

# Parsed policy sets kept, one per distinct slice of the bundle that requests have selected.
MAX_CACHED_SLICES = 512
# Parsed entity sets kept, one per distinct (principal, resource, channel, …) with their attributes and sets.
MAX_CACHED_ENTITY_SETS = 1_024
# A larger entity document is used and not kept, so that one caller's odd requests cannot fill memory.
MAX_CACHED_ENTITY_BYTES = 32 * KIB
# Entities kept with what was made of them: principals, tools and channels of one directory.
MAX_CACHED_ENTITIES = 4_096
# What the engine is asked to parse for one request. The largest tool input fits twice.
MAX_REQUEST_BYTES = 1 * MIB

MAX_EXPECTATION_FILE_BYTES = 1 * MIB

# Editors save in bursts: changes this close together are one reload.
WATCH_DEBOUNCE_MS = 200
# How often a policy directory that does not exist, or was replaced, is looked for again.
WATCH_RECHECK_MS = 1_000
