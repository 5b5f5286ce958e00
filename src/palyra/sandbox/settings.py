"""The settings of the sandbox: keys, defaults, bounds, and one line on each.

The types are the single source: validation, ``palyra config show`` and the reference page are all read from them.
"""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from palyra.config.setting_types import Count, Patterns, describe
from palyra.egress.settings import HostTexts
from palyra.sandbox import limits as sandbox


class SandboxSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    enabled: Annotated[bool, describe("Whether programs may be run at all.")] = True
    tier: Annotated[Literal["b", "c"], describe("Where programs run: b is a limited process, c an isolated one.")] = "c"
    egress: Annotated[
        Literal["none", "preflight", "strict"],
        describe("Network: none restricts nothing, preflight checks arguments, strict gives none but allowed hosts."),
    ] = "strict"
    allowed_hosts: Annotated[
        HostTexts, describe("Hosts that programs get, as HOST, HOST:PORT or *.HOST; each within egress.allowed_hosts.")
    ] = ()
    read_only: Annotated[bool, describe("Whether programs see the workspace without being able to change it.")] = False
    allow_interpreters: Annotated[
        bool, describe("Whether shells, interpreters and programs that run others may run.")
    ] = False
    allowed_executables: Annotated[
        Patterns, describe("The only programs that may run; empty means any not denied.")
    ] = ()
    cpu_seconds: Annotated[Count, describe("Processor time of each process.")] = sandbox.DEFAULT_CPU_SECONDS
    memory_bytes: Annotated[Count, describe("Memory of a program and what it starts.")] = sandbox.DEFAULT_MEMORY_BYTES
    pids: Annotated[Count, describe("Processes and threads at once.")] = sandbox.DEFAULT_PIDS
    open_files: Annotated[Count, describe("Open files of each process.")] = sandbox.DEFAULT_OPEN_FILES
    file_bytes: Annotated[Count, describe("Size of the largest file a program may write.")] = sandbox.DEFAULT_FILE_BYTES
    max_output_bytes: Annotated[
        int, Meta(ge=0, le=sandbox.MAX_OUTPUT_BYTES), describe("Most bytes of stdout and stderr together.")
    ] = sandbox.DEFAULT_OUTPUT_BYTES
    env: Annotated[dict[str, str], describe("Variables every program gets.")] = {}
    tool_roots: Annotated[Patterns, describe("Folders outside /usr that programs may read and run from.")] = ()
    appearing_protected: Annotated[
        Literal["keep", "move_aside", "fail"],
        describe(
            "What becomes of a protected name that a program creates; git's own files are judged by their content."
        ),
    ] = "move_aside"
    max_running: Annotated[int, Meta(ge=1, le=4096), describe("Programs at once; the next ones wait.")] = 64
    max_waiting: Annotated[int, Meta(ge=0, le=65536), describe("Programs that may wait; the next one is refused.")] = (
        1024
    )
