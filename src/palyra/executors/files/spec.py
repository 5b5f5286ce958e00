"""The file tools: their schemas (JSON Schema, draft 2020-12), their specs and their functions."""

import threading
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from palyra.executors.files.operations import list_directory, patch, read, write
from palyra.executors.files.search import search
from palyra.ids import ToolName
from palyra.pipeline.domain.spec import AccessedResources, ToolCapability, ToolMetadata, ToolSpec, ToolTier
from palyra.workspace import limits
from palyra.workspace.names import WorkspacePath
from palyra.workspace.root import Workspace

_DIALECT = "https://json-schema.org/draft/2020-12/schema"


def _object(properties: dict[str, Any], *, required: tuple[str, ...], **more: Any) -> dict[str, Any]:
    return {
        "$schema": _DIALECT,
        "type": "object",
        "properties": properties,
        "required": list(required),
        "additionalProperties": False,
        **more,
    }


def _text(description: str, **more: Any) -> dict[str, Any]:
    return {"type": "string", "description": description, **more}


def _count(
    description: str, *, minimum: int = 0, maximum: int = limits.MAX_SAFE_INTEGER, **more: Any
) -> dict[str, Any]:
    return {"type": "integer", "minimum": minimum, "maximum": maximum, "description": description, **more}


def _flag(description: str, **more: Any) -> dict[str, Any]:
    return {"type": "boolean", "description": description, **more}


def _path(description: str, **more: Any) -> dict[str, Any]:
    return _text(description, minLength=1, maxLength=limits.PATH_MAX_BYTES - 1, **more)


_SHOWN_PATH = _text(
    "The path relative to the workspace; control and invisible characters are escaped with backslashes."
)
_ENCODING = {
    "type": "string",
    "enum": ["utf-8", "base64"],
    "default": "utf-8",
    "description": "How content is written in JSON: as text, or as base64 for bytes that are not UTF-8.",
}
_SHA256 = {
    "type": "string",
    "pattern": "^[0-9a-f]{64}$",
    "description": "SHA-256 of the file's bytes, in lower-case hex.",
}
_EXPECTED = {
    **_SHA256,
    "description": "Refuse unless the file's current SHA-256 is this one: the sha256 of an earlier call.",
}
_TRUNCATED = _flag("Whether there is more than was returned.")

READ_INPUT = _object(
    {
        "path": _path("The file to read, relative to the workspace."),
        "offset": _count("The byte to start at.", default=0),
        "limit": _count(
            "The most bytes to return.", minimum=1, maximum=limits.MAX_READ_BYTES, default=limits.DEFAULT_READ_BYTES
        ),
        "encoding": _ENCODING,
    },
    required=("path",),
)
READ_OUTPUT = _object(
    {
        "path": _SHOWN_PATH,
        "content": _text("The bytes read, in the given encoding."),
        "encoding": {"type": "string", "enum": ["utf-8", "base64"], "description": "The encoding of content."},
        "offset": _count("The byte that content starts at."),
        "bytes": _count("How many bytes content stands for. The next part starts at offset plus bytes."),
        "size": _count("The size of the file in bytes."),
        "truncated": _flag("Whether the file goes on after content."),
        "sha256": _SHA256 | {"description": "SHA-256, in lower-case hex, of what sha256_of names."},
        "sha256_of": _text(
            "file: the digest is that of the whole file. part: the file is large, and it is that of content's bytes.",
            enum=["file", "part"],
        ),
    },
    required=("path", "content", "encoding", "offset", "bytes", "size", "truncated", "sha256", "sha256_of"),
)

LIST_INPUT = _object(
    {
        "path": _path("The directory to list, relative to the workspace.", default="."),
        "recursive": _flag("Whether to list what is in its directories too.", default=False),
        "max_entries": _count(
            "The most entries to return.",
            minimum=1,
            maximum=limits.MAX_LIST_ENTRIES,
            default=limits.DEFAULT_LIST_ENTRIES,
        ),
    },
    required=(),
)
_ENTRY: dict[str, Any] = {
    "type": "object",
    "properties": {
        "name": _text("The name; in a recursive listing the path from the listed directory."),
        "escaped": _flag("Whether the name has bytes or characters that had to be escaped with backslashes."),
        "type": _text("What it is.", enum=["file", "directory", "link", "fifo", "socket", "device"]),
        "size": _count("The size in bytes."),
        "mtime": _text("When the content last changed, as RFC 3339 in UTC."),
        "target": _text("What a link points to, as written in it."),
    },
    "required": ["name", "escaped", "type", "size", "mtime"],
    "additionalProperties": False,
}
LIST_OUTPUT = _object(
    {
        "path": _SHOWN_PATH,
        "entries": {"type": "array", "items": _ENTRY, "description": "Sorted by the bytes of the names."},
        "truncated": _TRUNCATED,
        "unreadable": _count("Directories that could not be read."),
    },
    required=("path", "entries", "truncated", "unreadable"),
)

SEARCH_INPUT = _object(
    {
        "query": _text(
            "The text to find, or a regular expression in Python's syntax. Matched line by line.",
            minLength=1,
            maxLength=limits.MAX_QUERY_CHARS,
        ),
        "path": _path("The directory or file to search.", default="."),
        "regex": _flag("Whether query is a regular expression.", default=False),
        "glob": _text(
            "Only files whose path matches, such as *.py, src/**/*.ts or *.{c,h}; without a slash the name alone.",
            minLength=1,
            maxLength=limits.MAX_GLOB_CHARS,
        ),
        "case_sensitive": _flag("Whether upper and lower case differ.", default=True),
        "max_matches": _count(
            "The most matches to return.", minimum=1, maximum=limits.MAX_MATCHES, default=limits.DEFAULT_MATCHES
        ),
    },
    required=("query",),
)
_MATCH: dict[str, Any] = {
    "type": "object",
    "properties": {
        "path": _SHOWN_PATH,
        "line": _count("The line, counted from 1.", minimum=1),
        "column": _count("The character in the line where the match starts, counted from 1.", minimum=1),
        "text": _text("The line, or the part of a long line around the match."),
    },
    "required": ["path", "line", "column", "text"],
    "additionalProperties": False,
}
SEARCH_OUTPUT = _object(
    {
        "path": _SHOWN_PATH,
        "matches": {"type": "array", "items": _MATCH, "description": "The first match of each line."},
        "files_searched": _count("Files whose text was searched."),
        "files_skipped": _count("Files that are binary, too large or not readable."),
        "truncated": _TRUNCATED,
        "stopped_by": {
            "type": ["string", "null"],
            "enum": ["time", "matches", "files", "bytes", None],
            "description": "The limit that ended the search early, if one did.",
        },
    },
    required=("path", "matches", "files_searched", "files_skipped", "truncated", "stopped_by"),
)

WRITE_INPUT = _object(
    {
        "path": _path("The file to write, relative to the workspace."),
        "content": _text("What to write, in the given encoding."),
        "encoding": _ENCODING,
        "mode": _text(
            "create refuses an existing file; overwrite replaces it; append adds to its end. "
            "The last two make a missing file.",
            enum=["create", "overwrite", "append"],
            default="create",
        ),
        "create_parents": _flag("Whether to make missing directories.", default=False),
        "expected_sha256": _EXPECTED,
        "executable": _flag("Whether the file may be executed. Left out, an existing file keeps what it has."),
    },
    required=("path", "content"),
)
WRITE_OUTPUT = _object(
    {
        "path": _SHOWN_PATH,
        "bytes": _count("The size of the file now."),
        "sha256": _SHA256,
        "created": _flag("Whether the file is new."),
    },
    required=("path", "bytes", "sha256", "created"),
)

_EDIT: dict[str, Any] = {
    "type": "object",
    "properties": {
        "old": _text("Text that occurs exactly once in the file.", minLength=1),
        "new": _text("The text to put in its place."),
    },
    "required": ["old", "new"],
    "additionalProperties": False,
}
PATCH_INPUT = _object(
    {
        "path": _path("The existing file to change, relative to the workspace."),
        "diff": _text("A unified diff of this one file. Lines and context must match exactly.", minLength=1),
        "edits": {
            "type": "array",
            "items": _EDIT,
            "minItems": 1,
            "maxItems": limits.MAX_EDITS,
            "description": "Replacements, each found in the file as it is before any of them; they may not overlap.",
        },
        "expected_sha256": _EXPECTED,
    },
    required=("path",),
    oneOf=[{"required": ["diff"]}, {"required": ["edits"]}],
)
PATCH_OUTPUT = _object(
    {
        "path": _SHOWN_PATH,
        "bytes": _count("The size of the file now."),
        "sha256": _SHA256,
        "applied": _count("How many hunks or edits were applied: all of them."),
        "kind": _text("What was counted.", enum=["hunks", "edits"]),
    },
    required=("path", "bytes", "sha256", "applied", "kind"),
)


# A file tool blocks: it runs on a thread, with arguments that fit its schema.
Run = Callable[[dict[str, Any], Workspace, threading.Event], dict[str, Any]]

FILES_EXECUTOR: Final = "files"
READ_ONLY_OBLIGATION: Final = "read_only"
_READS: Final = frozenset({ToolCapability.FILESYSTEM_READ})
_WRITES: Final = frozenset({ToolCapability.FILESYSTEM_WRITE})


class FileTool(NamedTuple):
    spec: ToolSpec
    run: Run


def find_path(arguments: Mapping[str, Any]) -> AccessedResources:
    """Return the path of a call in its normal form, for policies to judge. ``authorize`` adds where it leads."""
    return AccessedResources(paths=(str(WorkspacePath.parse(arguments.get("path", "."))),))


def _tool(
    name: str,
    title: str,
    description: str,
    schemas: tuple[dict[str, Any], dict[str, Any]],
    capabilities: frozenset[ToolCapability],
    run: Run,
) -> FileTool:
    spec = ToolSpec(
        name=ToolName(name),
        title=title,
        description=description,
        input_schema=schemas[0],
        output_schema=schemas[1],
        metadata=ToolMetadata(capabilities=capabilities),
        executor=FILES_EXECUTOR,
        other_tiers=frozenset({ToolTier.WORKER}),
        idempotent=ToolCapability.FILESYSTEM_WRITE not in capabilities,
        touches=find_path,
        enforceable=frozenset(("timeout_ms", "max_output_bytes", READ_ONLY_OBLIGATION)),
    )
    return FileTool(spec, run)


_TOOLS: Final = (
    _tool(
        "fs.read",
        "Read a file",
        "Reads a regular file of the workspace, whole or in part, as text or base64.",
        (READ_INPUT, READ_OUTPUT),
        _READS,
        read,
    ),
    _tool(
        "fs.list",
        "List a directory",
        "Lists a directory of the workspace: names, types, sizes and times. Links are shown, not followed.",
        (LIST_INPUT, LIST_OUTPUT),
        _READS,
        list_directory,
    ),
    _tool(
        "fs.search",
        "Search in files",
        "Finds lines in the workspace's text files by plain text or regular expression.",
        (SEARCH_INPUT, SEARCH_OUTPUT),
        _READS,
        search,
    ),
    _tool(
        "fs.write",
        "Write a file",
        "Makes, replaces or extends a file of the workspace in one atomic step.",
        (WRITE_INPUT, WRITE_OUTPUT),
        _WRITES,
        write,
    ),
    _tool(
        "fs.patch",
        "Patch a file",
        "Changes an existing file of the workspace by a unified diff or exact edits, all or nothing.",
        (PATCH_INPUT, PATCH_OUTPUT),
        _READS | _WRITES,
        patch,
    ),
)
FILE_TOOLS: Final = {str(tool.spec.name): tool for tool in _TOOLS}


def file_spec(name: str) -> ToolSpec:
    return FILE_TOOLS[name].spec
