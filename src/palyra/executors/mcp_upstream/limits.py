"""Bounds of the MCP server and of upstream servers, each with its reason."""

from typing import Final

from palyra.limits import KIB, MAX_HTTP_BODY_BYTES, MIB

# One message of a client. The largest tool input fits, escaped and in its envelope, as it does over the API.
MAX_MESSAGE_BYTES: Final = MAX_HTTP_BODY_BYTES
# A client that was silent for this long has forgotten its session: its handles end with its run's.
SESSION_IDLE_SECONDS: Final = 1_800.0
# Sessions at once, over both transports. A client needs one.
MAX_SESSIONS: Final = 256
# Those of one principal, on each transport, so that one that opens sessions without end keeps no other out.
MAX_SESSIONS_OF_PRINCIPAL: Final = 64
# Messages of one connection on their way to the server before the client has to wait.
MESSAGES_AHEAD: Final = 16
# Calls that one run's timeline lists; the journal has the rest.
MAX_TIMELINE_CALLS: Final = 500
# Resources that a listing names: the newest calls of the session's run.
MAX_LISTED_CALLS: Final = 50
# How often a call that runs says so to a client that asked for progress.
PROGRESS_SECONDS: Final = 2.0
# Names of tools in a denial: enough to change course with, short enough to read.
MAX_NAMES_IN_A_DENIAL: Final = 40
# How long a person may take with a question in the client, where the protocol keeps the call open meanwhile.
ELICITATION_SECONDS: Final = 300.0

# One message of an upstream server: as much as the pipeline returns of any tool, and its envelope.
MAX_SERVER_MESSAGE_BYTES: Final = 4 * MIB
# Lists and objects in it: each costs the event loop some microseconds, and a megabyte of ordinary data has fewer.
MAX_SERVER_CONTAINERS: Final = 16_384
# Lines that nobody asked for, messages or not, in a second: far more than a person could follow of progress and logs.
MAX_SERVER_LINES_A_SECOND: Final = 1024
# Requests of a server that wait for an answer. Every request is refused at once, so only a server that floods has more.
MAX_SERVER_REQUESTS: Final = 64
# Bytes that a server may print before it is ended: a server that prints without end is broken.
MAX_SERVER_OUTPUT_BYTES: Final = 1024 * MIB
# The last bytes of its stderr, kept for the person who has to find out why it failed.
KEPT_STDERR_BYTES: Final = 8 * KIB
# Tools of one server, and the size of one definition: a model does not read more.
MAX_SERVER_TOOLS: Final = 256
MAX_DEFINITION_BYTES: Final = 64 * KIB
# The template of a resource's address: as much as the protocol's library parses, and more than any server has.
MAX_TEMPLATE_CHARS: Final = 8_192
MAX_TEMPLATE_VARIABLES: Final = 256
# Pages of a listing, so that a server cannot hand out cursors for ever.
MAX_LISTING_PAGES: Final = 32
# From its start to the answer to its first request. Node and Python servers take one or two seconds.
SERVER_START_SECONDS: Final = 30.0
# An instance that nobody has called for this long is ended.
SERVER_IDLE_SECONDS: Final = 300.0
# Instances at once, of all servers: each is a process tree of its own.
MAX_INSTANCES: Final = 32
# Those that the calls of one principal started, over all servers and runs: three agents leave room for a fourth.
MAX_INSTANCES_OF_PRINCIPAL: Final = 8
# Those that only an operator's own calls may start, so that agents that flood do not stop a person.
INSTANCES_FOR_OPERATORS: Final = 2
