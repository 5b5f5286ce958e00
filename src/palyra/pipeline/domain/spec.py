"""The specification of a tool: its name, what it can touch, and the shape of its arguments."""

from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Any

import msgspec

from palyra.ids import Principal, ToolName
from palyra.limits import MAX_TOOL_INPUT_BYTES
from palyra.pipeline.domain.budget import BudgetKind
from palyra.policy.request import Entity, EntityDirectory, PolicyRequest

# The names of skills' tools begin like this, and no others do.
SKILL_TOOLS = "skill."
# The executor that has a call run by a worker of the fleet, whatever executor it has here.
WORKER_EXECUTOR = "worker"


class ToolCapability(StrEnum):
    PROCESS_EXEC = "process_exec"
    NETWORK = "network"
    SECRETS_READ = "secrets_read"
    FILESYSTEM_READ = "filesystem_read"
    FILESYSTEM_WRITE = "filesystem_write"
    ARTIFACTS_READ = "artifacts_read"
    DEVICE = "device"
    BROWSER = "browser"
    # Messages to people and programs that listen.
    CHANNELS = "channels"


SENSITIVE_CAPABILITIES = frozenset(ToolCapability) - {ToolCapability.ARTIFACTS_READ}


class ToolMetadata(msgspec.Struct, frozen=True, kw_only=True):
    """``grave`` is a tool whose mistaken use does harm whatever it can touch: its author said so."""

    capabilities: frozenset[ToolCapability] = frozenset()
    grave: bool = False

    @property
    def sensitive(self) -> bool:
        return self.grave or bool(self.capabilities & SENSITIVE_CAPABILITIES)


class AccessedResources(msgspec.Struct, frozen=True, kw_only=True):
    """The resources that a call with these arguments would reach, for the person who approves and for policy.

    ``requests`` says in words which requests some of the hosts take. Only the person reads it.
    """

    paths: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    secrets: tuple[str, ...] = ()
    devices: tuple[str, ...] = ()
    requests: tuple[str, ...] = ()


class Arguments(msgspec.Struct, frozen=True, kw_only=True):
    """Everything later in the pipeline refers to ``digest``; nothing later looks at the raw text again."""

    value: dict[str, Any]
    canonical: bytes
    digest: str


def reserve_nothing(_arguments: Mapping[str, Any]) -> Mapping[BudgetKind, int]:
    return {}


def access_nothing(_arguments: Mapping[str, Any]) -> AccessedResources:
    return AccessedResources()


def leave_unchanged(arguments: dict[str, Any]) -> dict[str, Any]:
    return arguments


class ToolTier(StrEnum):
    """Where a tool runs. ``builtin`` tools are our own code, confined by what it opens rather than by a sandbox."""

    BUILTIN = "builtin"
    A = "a"
    B = "b"
    C = "c"
    WORKER = "worker"
    BROWSER = "browser"


class SkillOfTool(msgspec.Struct, frozen=True, kw_only=True):
    """The skill whose tool it is, as policies see it; ``digest`` is the approved archive that a call is bound to."""

    entity: Entity
    entrypoint: str
    digest: str


class DeviceOfCall(msgspec.Struct, frozen=True, kw_only=True):
    """The device that a call would use, as policies see it, and what of it."""

    entity: Entity
    capability: str


class Asker(msgspec.Struct, frozen=True, kw_only=True):
    """The requester of a call, for a tool whose questions to policy depend on it."""

    principal: Principal
    channel: str
    run: str
    directory: EntityDirectory
    workspace: str = ""
    session: str = ""
    device: str = ""
    # The tool itself, as policies see it.
    tool: Entity


class BrowserOfCall(msgspec.Struct, frozen=True, kw_only=True):
    """The browser session that a call acts in, as policies see it.

    The call that opens a session has none. ``questions`` are further ones that have to be allowed, such as reaching a
    host or typing a secret.
    """

    session: Entity | None = None
    questions: tuple[PolicyRequest, ...] = ()


class ToolSpec(msgspec.Struct, frozen=True, kw_only=True):
    name: ToolName
    title: str
    description: str
    input_schema: dict[str, Any]
    output_schema: dict[str, Any]
    metadata: ToolMetadata = ToolMetadata()
    tier: ToolTier = ToolTier.BUILTIN
    # Other tiers that policy may oblige this tool to run in.
    other_tiers: frozenset[ToolTier] = frozenset()
    executor: str
    # Such a tool needs the decision ``skill.execute`` as well.
    skill: SkillOfTool | None = None
    # The digest of the definition that was reviewed, for a tool of a server behind Palyra: calls are bound to it.
    definition: str = ""
    # For a tool that uses a device: which one these arguments mean. It needs the decision ``node.invoke`` as well.
    device: Callable[[Mapping[str, Any]], DeviceOfCall] | None = None
    # For a tool of the browser: the session these arguments mean, if it is the asker's own; raises when there is none.
    browser: Callable[[Asker, Mapping[str, Any]], BrowserOfCall] | None = None
    # Adds the arguments that a caller may omit. It runs before policy decides: decision and approval cover them too.
    complete: Callable[[dict[str, Any]], dict[str, Any]] = leave_unchanged
    max_input_bytes: int = MAX_TOOL_INPUT_BYTES
    # A second run does no harm. MCP clients see it as a hint, and a lost lease may run on another worker.
    idempotent: bool = False
    # A call of it changes something that its capabilities do not tell of, such as ending a program.
    changes_state: bool = False
    # The obligations, besides its tier, that policy may put on this tool and its executor then holds it to.
    enforceable: frozenset[str] = frozenset(("timeout_ms", "max_output_bytes"))
    touches: Callable[[Mapping[str, Any]], AccessedResources] = access_nothing
    # The most that a call with these arguments may use of the run's budgets, besides calls and time.
    reserves: Callable[[Mapping[str, Any]], Mapping[BudgetKind, int]] = reserve_nothing

    @property
    def digest(self) -> str:
        """Return the digest that a decision is bound to: of a skill's archive, or of the reviewed definition."""
        return self.definition if self.skill is None else self.skill.digest
