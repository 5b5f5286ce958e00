"""The settings of upstream MCP servers: the program of each, and the resources that it is given."""

import re
from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta

from palyra.egress import limits as egress
from palyra.errors import InvalidInput
from palyra.limits import MAX_PRINCIPAL_CHARS
from palyra.sandbox import limits as sandbox
from palyra.vault.reference import SecretRef

_NAME: Final = re.compile(r"[a-z][a-z0-9-]{0,31}")
# The first words of Palyra's own tools: a server must not look like one of them.
RESERVED: Final = frozenset(
    {"browser", "echo", "fs", "http", "mcp", "node", "palyra", "plugin", "process", "skill", "sleep", "vault", "worker"}
)
MCP_EXECUTOR: Final = "mcp"
# The value of secret variables while a server is only inspected: it starts, and has no secret to leak.
PLACEHOLDER: Final = "not-given-before-review"
# Instead of a folder: the workspace that the caller's other tools work in.
CALLERS_WORKSPACE: Final = "caller"
HOST_CHARS: Final = egress.MAX_HOST_CHARS + len("*.:65535")


class BadServer(InvalidInput):
    code = "mcp.bad_server"
    hint = "docs/how-to/put-mcp-servers-behind-palyra.md shows what a server's settings look like"


class ServerPlan(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One upstream server. ``secrets`` maps variables to references of the vault.

    ``isolation`` says between whom a process and its folder are never shared. Without a ``workspace`` an instance has a
    folder of its own in the state directory.
    """

    command: Annotated[str, Meta(min_length=1, max_length=4096)]
    args: tuple[str, ...] = ()
    env: dict[str, str] = {}
    secrets: dict[str, str] = {}
    hosts: tuple[Annotated[str, Meta(min_length=1, max_length=HOST_CHARS)], ...] = ()
    isolation: Literal["principal", "run", "shared"] = "principal"
    workspace: str = ""
    read_only: bool = False
    tool_roots: tuple[str, ...] = ()
    allow_interpreters: bool = False
    memory_bytes: Annotated[int, Meta(ge=1, le=sandbox.MAX_BYTES)] = sandbox.DEFAULT_MEMORY_BYTES
    # The kinds of its definitions that clients get. Prompts and resources are reviewed like tools.
    offers: tuple[Literal["tools", "prompts", "resources"], ...] = ("tools",)
    cpu_seconds: Annotated[int, Meta(ge=1, le=sandbox.MAX_CPU_SECONDS)] = 3_600

    def check(self, name: str) -> None:
        """Check the rules between fields, and those that a field's type does not state."""
        if not _NAME.fullmatch(name) or name in RESERVED:
            raise BadServer(
                f"{name[:64]!r} cannot be the name of a server: use a short word of its own, such as github"
            )
        for ref in self.secrets.values():
            SecretRef.parse(ref)
        if both := sorted(self.env.keys() & self.secrets.keys()):
            raise BadServer(f"{name}: {both[0]} is in env and in secrets")
        named = [self.workspace] if self.workspace not in ("", CALLERS_WORKSPACE) else []
        for path in (*self.tool_roots, *named):
            if not path.startswith(("/", "~/")):
                raise BadServer(f"{name}: {path!r} is relative: write an absolute path")
        if named and not self.read_only and self.isolation != "shared":
            raise BadServer(
                f"{name}: every principal's calls would write to {self.workspace}",
                hint='leave the workspace away, write workspace = "caller", read_only = true, or isolation = "shared"',
            )
        if self.workspace == CALLERS_WORKSPACE and self.isolation == "shared":
            raise BadServer(f"{name}: a shared instance has no caller's workspace: use principal or run")


Name = Annotated[str, Meta(min_length=1, max_length=MAX_PRINCIPAL_CHARS)]


class McpSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    enabled: Annotated[bool, Meta(description="Whether agents may connect over the Model Context Protocol.")] = True
    deciders: Annotated[
        dict[Name, Name],
        Meta(
            description="The person in front of each principal's client, who is asked there for approvals where policy"
            " lets them decide; a principal that is not named is never asked through its client."
        ),
    ] = {}
    servers: Annotated[
        dict[Name, ServerPlan],
        Meta(
            description="Other servers behind Palyra, by name: what is run in a Tier C sandbox, and what it is given."
        ),
    ] = {}
