"""The file tools as the tool catalogue takes them: names, schemas, capabilities, paths touched, and the function."""

import threading
from collections.abc import Callable
from typing import Any

import msgspec

from palyra.workspace import schemas
from palyra.workspace.fs_list import list_directory
from palyra.workspace.fs_patch import patch
from palyra.workspace.fs_read import read
from palyra.workspace.fs_search import search
from palyra.workspace.fs_write import write
from palyra.workspace.path import WorkspacePath
from palyra.workspace.root import Workspace

Run = Callable[[dict[str, Any], Workspace, threading.Event], dict[str, Any]]


class FileTool(msgspec.Struct, frozen=True, kw_only=True):
    """``run`` blocks: it belongs on a thread. Its arguments have passed ``input_schema``."""

    name: str
    title: str
    description: str
    input_schema: dict[str, Any]
    output_schema: dict[str, Any]
    capabilities: tuple[str, ...]
    touches: Callable[[dict[str, Any]], tuple[str, ...]]
    run: Run


def touches_path(arguments: dict[str, Any]) -> tuple[str, ...]:
    """The path the call names, in its one normal spelling, for policies to judge. Links are not resolved here."""
    return (str(WorkspacePath.parse(arguments.get("path", "."))),)


_READS = ("filesystem_read",)
_WRITES = ("filesystem_write",)

FILE_TOOLS: tuple[FileTool, ...] = (
    FileTool(
        name="fs.read",
        title="Read a file",
        description="Reads a regular file of the workspace, whole or in part, as text or base64.",
        input_schema=schemas.READ_INPUT,
        output_schema=schemas.READ_OUTPUT,
        capabilities=_READS,
        touches=touches_path,
        run=read,
    ),
    FileTool(
        name="fs.list",
        title="List a directory",
        description="Lists a directory of the workspace: names, types, sizes and times. Links are shown, not followed.",
        input_schema=schemas.LIST_INPUT,
        output_schema=schemas.LIST_OUTPUT,
        capabilities=_READS,
        touches=touches_path,
        run=list_directory,
    ),
    FileTool(
        name="fs.search",
        title="Search in files",
        description="Finds lines in the workspace's text files by plain text or regular expression.",
        input_schema=schemas.SEARCH_INPUT,
        output_schema=schemas.SEARCH_OUTPUT,
        capabilities=_READS,
        touches=touches_path,
        run=search,
    ),
    FileTool(
        name="fs.write",
        title="Write a file",
        description="Makes, replaces or extends a file of the workspace in one atomic step.",
        input_schema=schemas.WRITE_INPUT,
        output_schema=schemas.WRITE_OUTPUT,
        capabilities=_WRITES,
        touches=touches_path,
        run=write,
    ),
    FileTool(
        name="fs.patch",
        title="Patch a file",
        description="Changes an existing file of the workspace by a unified diff or exact edits, all or nothing.",
        input_schema=schemas.PATCH_INPUT,
        output_schema=schemas.PATCH_OUTPUT,
        capabilities=(*_READS, *_WRITES),
        touches=touches_path,
        run=patch,
    ),
)
