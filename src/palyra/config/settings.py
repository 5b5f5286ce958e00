"""The tree of settings: sections, keys, defaults, bounds, and one line on each.

The types are the single source: validation, ``palyra config show`` and the reference page are all read from them.
"""

from collections.abc import Mapping
from functools import cache
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta

from palyra import limits
from palyra.browser.browser_settings import BrowserSettings
from palyra.egress import limits as egress
from palyra.egress.credential import CredentialBindingPlan
from palyra.errors import InvalidInput
from palyra.identity import limits as identity
from palyra.mcp.mcp_settings import McpSettings
from palyra.nodes import limits as pairing
from palyra.nodes import rpc_limits as nodes
from palyra.nodes.host.host_settings import NodeHostSettings
from palyra.sandbox import limits as sandbox
from palyra.telemetry.log_settings import LogSettings
from palyra.wasm import limits as wasm
from palyra.workers.agent.agent_settings import WorkerAgentSettings
from palyra.workers.fleet_settings import WorkerFleetSettings

ENV_PREFIX: Final = "PALYRA_"
ENV_SEPARATOR: Final = "__"


class InvalidSetting(InvalidInput):
    code = "config.invalid_value"
    hint = "docs/reference/configuration.md lists every setting with its type and default"


def _says(description: str) -> Meta:
    return Meta(description=description)


Pattern = Annotated[str, Meta(min_length=1, max_length=limits.MAX_PRINCIPAL_CHARS)]
Patterns = tuple[Pattern, ...]
_LONGEST_RULE: Final = egress.MAX_HOST_CHARS + len("*.:65535")
HostTexts = tuple[Annotated[str, Meta(min_length=1, max_length=_LONGEST_RULE)], ...]
HostName = Annotated[str, Meta(min_length=1, max_length=egress.MAX_HOST_CHARS)]
Addresses = Annotated[tuple[str, ...], Meta(min_length=1, max_length=egress.MAX_STATIC_ADDRESSES)]
Count = Annotated[int, Meta(ge=1, le=2**53 - 1)]
Millis = Annotated[int, Meta(ge=1, le=limits.MAX_CALL_TIMEOUT_MS)]

# Read or run by a person's own programs once they open the workspace: an agent that writes them acts as that person.
PROTECTED_NAMES: Final = (
    ".git/hooks",
    ".git/config",
    ".gitmodules",
    ".env*",
    ".vscode",
    ".idea",
    ".devcontainer",
    ".husky",
    ".pre-commit-config.yaml",
    ".github/workflows",
    ".gitlab-ci.yml",
    ".circleci",
    "Jenkinsfile",
    ".mcp.json",
    ".npmrc",
    ".pypirc",
    ".netrc",
    ".ssh",
)


class DaemonSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    host: Annotated[str, Meta(min_length=1), _says("Address the API listens on.")] = "127.0.0.1"
    port: Annotated[int, Meta(ge=0, le=65535), _says("Port of the API; 0 takes any free one.")] = 7142


class WorkspaceSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    root: Annotated[
        str, _says("Folder that calls work in, which has to be there; empty means `workspace` in the state directory.")
    ] = ""
    protected_names: Annotated[Patterns, _says("Names beneath the root that no tool may write, as globs.")] = (
        PROTECTED_NAMES
    )


class ToolsSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    allowed: Annotated[Patterns, _says("Tools that policies may permit at all, as globs.")] = (
        "echo",
        "sleep",
        "fs.*",
        "process.*",
        "http.fetch",
        "skill.*",
        "node.*",
        "browser.*",
    )
    preapproved: Annotated[Patterns, _says("Sensitive tools that run without asking a person, as globs.")] = ()
    timeout_ms: Annotated[Millis, _says("Deadline of a call that names none.")] = limits.DEFAULT_CALL_TIMEOUT_MS
    max_timeout_ms: Annotated[Millis, _says("Longest deadline a call may ask for.")] = limits.MAX_CALL_TIMEOUT_MS
    max_output_bytes: Annotated[
        int,
        Meta(ge=limits.KIB, le=limits.MAX_TOOL_OUTPUT_BYTES),
        _says("Most bytes one call may return."),
    ] = limits.MAX_TOOL_OUTPUT_BYTES
    max_concurrent_calls: Annotated[
        int,
        Meta(ge=1, le=limits.MAX_CONCURRENT_CALLS),
        _says("Calls worked on at once; the next one is told to come back."),
    ] = limits.MAX_CONCURRENT_CALLS


class AccessSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    principals: Annotated[Patterns, _says("Principals that policies may permit at all, as globs.")] = (
        "agent:*",
        "user:*",
    )
    channels: Annotated[Patterns, _says("Doors a call may come through.")] = ("cli", "api", "mcp", "console", "node")
    operators: Annotated[Patterns, _says("Principals that may decide approvals and act for others.")] = (
        "user:operator",
    )
    groups: Annotated[dict[Pattern, Patterns], _says("Group names and the principals in each, as globs.")] = {}


class PolicySettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    dir: Annotated[str, _says("Folder of `*.cedar` files; empty means `policies` beside the settings file.")] = ""


class SandboxSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    enabled: Annotated[bool, _says("Whether programs may be run at all.")] = True
    tier: Annotated[Literal["b", "c"], _says("Where programs run: b is a limited process, c an isolated one.")] = "c"
    egress: Annotated[
        Literal["none", "preflight", "strict"],
        _says("Network: none restricts nothing, preflight checks arguments, strict gives none but allowed hosts."),
    ] = "strict"
    allowed_hosts: Annotated[
        HostTexts, _says("Hosts that programs get, as HOST, HOST:PORT or *.HOST; each within egress.allowed_hosts.")
    ] = ()
    read_only: Annotated[bool, _says("Whether programs see the workspace without being able to change it.")] = False
    allow_interpreters: Annotated[bool, _says("Whether shells, interpreters and programs that run others may run.")] = (
        False
    )
    allowed_executables: Annotated[Patterns, _says("The only programs that may run; empty means any not denied.")] = ()
    cpu_seconds: Annotated[Count, _says("Processor time of each process.")] = sandbox.DEFAULT_CPU_SECONDS
    memory_bytes: Annotated[Count, _says("Memory of a program and what it starts.")] = sandbox.DEFAULT_MEMORY_BYTES
    pids: Annotated[Count, _says("Processes and threads at once.")] = sandbox.DEFAULT_PIDS
    open_files: Annotated[Count, _says("Open files of each process.")] = sandbox.DEFAULT_OPEN_FILES
    file_bytes: Annotated[Count, _says("Size of the largest file a program may write.")] = sandbox.DEFAULT_FILE_BYTES
    max_output_bytes: Annotated[
        int, Meta(ge=0, le=sandbox.MAX_OUTPUT_BYTES), _says("Most bytes of stdout and stderr together.")
    ] = sandbox.DEFAULT_OUTPUT_BYTES
    env: Annotated[dict[str, str], _says("Variables every program gets.")] = {}
    tool_roots: Annotated[Patterns, _says("Folders outside /usr that programs may read and run from.")] = ()
    appearing_protected: Annotated[
        Literal["keep", "move_aside", "fail"],
        _says("What becomes of a protected name that a program creates."),
    ] = "keep"
    max_running: Annotated[int, Meta(ge=1, le=4096), _says("Programs at once; the next ones wait.")] = 64
    max_waiting: Annotated[int, Meta(ge=0, le=65536), _says("Programs that may wait; the next one is refused.")] = 1024


class EgressSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    allowed_hosts: Annotated[
        HostTexts,
        _says("The most that anything may reach, as HOST (ports 80 and 443), HOST:PORT or *.HOST; empty is nothing."),
    ] = ()
    private_targets: Annotated[
        HostTexts,
        _says("Those of the allowed hosts that may have addresses on private networks or on this machine."),
    ] = ()
    plain_targets: Annotated[
        HostTexts,
        _says("Those of the allowed hosts, as HOST:PORT, that skills speak to without TLS, attached secrets included."),
    ] = ()
    static_hosts: Annotated[
        dict[HostName, Addresses], _says("Names with addresses of their own, which are judged as any other.")
    ] = {}
    bindings: Annotated[
        tuple[CredentialBindingPlan, ...],
        _says("Secrets of the vault that are added to requests on their way out, and the requests each is for."),
    ] = ()
    max_tunnels: Annotated[
        int, Meta(ge=1, le=egress.MAX_TUNNELS), _says("Connections one call may have open at once.")
    ] = egress.DEFAULT_MAX_TUNNELS
    idle_seconds: Annotated[
        float,
        Meta(gt=0, le=egress.MAX_IDLE_SECONDS),
        _says("Seconds after which a connection that moves nothing ends."),
    ] = egress.DEFAULT_IDLE_SECONDS
    max_call_bytes: Annotated[Count, _says("Bytes one call may send and receive.")] = egress.DEFAULT_MAX_CALL_BYTES
    upstream: Annotated[
        str, _says("The proxy of this network, as http://HOST:PORT or socks5://HOST:PORT; empty means none.")
    ] = ""

    ca_file: Annotated[
        str, _says("Certificate authorities to trust besides the system's, as a PEM file; empty means none.")
    ] = ""


class VaultSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    key_source: Annotated[
        Literal["file", "keyring", "passphrase", "environment"],
        _says("Where the key that protects all secrets comes from."),
    ] = "file"
    key_file: Annotated[
        str, _says("The key file, outside the state directory; empty means `vault.key` beside the settings file.")
    ] = ""
    passphrase_file: Annotated[
        str, _says("A file with the passphrase, mode 0600; while it is changed, the new one and the old one in lines.")
    ] = ""
    passphrase_fd: Annotated[
        int, Meta(ge=-1, le=1023), _says("An open descriptor to read the passphrase from; -1 means none.")
    ] = -1


class SkillsSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    trust_on_first_use: Annotated[
        bool,
        _says("Let unknown publishers' skills into quarantine; approving one pins publisher and skill id to its key."),
    ] = False
    builder_enabled: Annotated[bool, _says("Whether `palyra skill builder` may make skills (experimental).")] = False
    builder_command: Annotated[
        tuple[str, ...],
        _says("Program and arguments that generate a skill: JSON in, JSON out; empty means the built-in templates."),
    ] = ()
    builder_timeout_seconds: Annotated[int, Meta(ge=1, le=3600), _says("How long that program may take.")] = 120


class WasmSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    enabled: Annotated[bool, _says("Whether WebAssembly, and with it skills, may be run at all.")] = True
    fuel: Annotated[Count, _says("Fuel of a call whose skill asks for none; one unit is about one instruction.")] = (
        wasm.RuntimeLimits().fuel_budget
    )
    max_fuel: Annotated[Count, _says("Most fuel that a skill may ask for.")] = wasm.DEFAULT_MAX_FUEL
    memory_bytes: Annotated[
        int,
        Meta(ge=wasm.WASM_PAGE_BYTES, le=wasm.RuntimeLimits().max_memory_bytes),
        _says("Most memory of one guest, all its memories together."),
    ] = wasm.RuntimeLimits().max_memory_bytes
    max_instances: Annotated[
        int,
        Meta(ge=1, le=wasm.RuntimeLimits().max_instances),
        _says("Guests at once; the next ones wait, then are told to come back."),
    ] = wasm.RuntimeLimits().max_instances
    workers: Annotated[int, Meta(ge=1, le=64), _says("Worker processes kept ready.")] = wasm.PoolSettings().ready
    timeout_ms: Annotated[Millis, _says("Deadline of a guest whose skill asks for none.")] = wasm.DEFAULT_TIMEOUT_MS
    workspace_modules: Annotated[
        bool, _says("Whether operators may run module files of the workspace with plugin.run.")
    ] = False


class NodeSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    enabled: Annotated[bool, _says("Whether devices may be paired and used at all.")] = True
    host: Annotated[str, Meta(min_length=1), _says("Address the listeners for devices are on.")] = "127.0.0.1"
    port: Annotated[int, Meta(ge=0, le=65535), _says("Port of paired devices; 0 takes a free one and keeps to it.")] = 0
    pairing_port: Annotated[
        int, Meta(ge=0, le=65535), _says("Port that pairing goes over; 0 takes a free one and keeps to it.")
    ] = 0
    advertise: Annotated[
        tuple[HostName, ...],
        _says("Names and addresses that devices reach this machine by, the best first; for codes and certificate."),
    ] = ()
    store: Annotated[
        Literal["file", "sql"], _says("Where devices are kept: in `node-runtime.v1.json`, or in the database.")
    ] = "file"
    code_seconds: Annotated[
        int,
        Meta(ge=pairing.MIN_CODE_TTL_SECONDS, le=pairing.MAX_CODE_TTL_SECONDS),
        _says("How long a pairing code works if its maker does not say."),
    ] = pairing.DEFAULT_CODE_TTL_SECONDS
    heartbeat_seconds: Annotated[
        float,
        Meta(ge=nodes.MIN_HEARTBEAT_SECONDS, le=nodes.MAX_HEARTBEAT_SECONDS),
        _says("How often a connected device says that it is there."),
    ] = nodes.DEFAULT_HEARTBEAT_SECONDS
    heartbeat_timeout_seconds: Annotated[
        float,
        Meta(ge=nodes.MIN_HEARTBEAT_SECONDS, le=nodes.MAX_HEARTBEAT_SECONDS),
        _says("Seconds of silence after which a device counts as gone."),
    ] = nodes.DEFAULT_HEARTBEAT_TIMEOUT_SECONDS
    max_result_bytes: Annotated[
        int,
        Meta(ge=nodes.MIN_RESULT_BYTES, le=nodes.MAX_RESULT_BYTES),
        _says("Most bytes a device may return for one request."),
    ] = nodes.DEFAULT_MAX_RESULT_BYTES


class IdentitySettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    certificate_seconds: Annotated[
        int,
        Meta(ge=identity.MIN_CERTIFICATE_SECONDS, le=identity.MAX_CERTIFICATE_SECONDS),
        _says("Life of a device's certificate, which renews itself; one that was away for longer is paired again."),
    ] = identity.DEFAULT_CERTIFICATE_SECONDS


class ApprovalsSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    ttl_seconds: Annotated[Count, _says("How long a request for approval waits before it is denied.")] = 900
    max_ttl_seconds: Annotated[Count, _says("Longest life of an approval, whatever its scope.")] = 86_400


class BudgetSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    calls: Annotated[Count, _says("Calls in one run.")] = limits.DEFAULT_MAX_CALLS_PER_RUN
    wall_ms: Annotated[Count, _says("Time the calls of one run may take in sum.")] = limits.DEFAULT_RUN_WALL_MS
    egress_bytes: Annotated[Count, _says("Bytes one run may send and receive.")] = limits.DEFAULT_RUN_EGRESS_BYTES
    wasm_fuel: Annotated[Count, _says("WebAssembly fuel one run may burn.")] = limits.DEFAULT_RUN_WASM_FUEL
    browser_actions: Annotated[Count, _says("Browser actions in one run.")] = limits.DEFAULT_RUN_BROWSER_ACTIONS


class JournalSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    checkpoint_events: Annotated[Count, _says("Events after which a checkpoint is signed.")] = (
        limits.CHECKPOINT_EVERY_EVENTS
    )
    checkpoint_seconds: Annotated[
        float, Meta(gt=0, le=86_400), _says("Seconds after which a checkpoint is signed, if anything happened.")
    ] = limits.CHECKPOINT_EVERY_SECONDS


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    daemon: DaemonSettings = DaemonSettings()
    workspace: WorkspaceSettings = WorkspaceSettings()
    tools: ToolsSettings = ToolsSettings()
    access: AccessSettings = AccessSettings()
    policy: PolicySettings = PolicySettings()
    sandbox: SandboxSettings = SandboxSettings()
    egress: EgressSettings = EgressSettings()
    browser: BrowserSettings = BrowserSettings()
    vault: VaultSettings = VaultSettings()
    skills: SkillsSettings = SkillsSettings()
    wasm: WasmSettings = WasmSettings()
    identity: IdentitySettings = IdentitySettings()
    nodes: NodeSettings = NodeSettings()
    node: NodeHostSettings = NodeHostSettings()
    worker: WorkerAgentSettings = WorkerAgentSettings()
    workers: WorkerFleetSettings = WorkerFleetSettings()
    mcp: McpSettings = McpSettings()
    approvals: ApprovalsSettings = ApprovalsSettings()
    budget: BudgetSettings = BudgetSettings()
    journal: JournalSettings = JournalSettings()
    log: LogSettings = LogSettings()


class SettingInfo(msgspec.Struct, frozen=True, kw_only=True):
    """One leaf of the tree, as the documentation and the parsers need it."""

    name: str
    section: str
    key: str
    type: Any
    default: Any
    description: str

    @property
    def env_name(self) -> str:
        return f"{ENV_PREFIX}{self.section}{ENV_SEPARATOR}{self.key}".upper()


@cache
def known_settings() -> Mapping[str, SettingInfo]:
    """Every setting by its dotted name, in the order of the tree."""
    found: dict[str, SettingInfo] = {}
    for section in msgspec.structs.fields(Settings):
        defaults = section.type()
        for field in msgspec.structs.fields(section.type):
            name = f"{section.name}.{field.name}"
            found[name] = SettingInfo(
                name=name,
                section=section.name,
                key=field.name,
                type=field.type,
                default=getattr(defaults, field.name),
                description=_description_of(field.type),
            )
    return found


def _description_of(kind: Any) -> str:
    described = [meta.description for meta in kind.__metadata__ if isinstance(meta, Meta) and meta.description]
    if len(described) != 1:
        raise TypeError(f"a setting needs one description, this has {len(described)}: {kind}")
    return str(described[0])


def value_of(settings: Settings, name: str) -> Any:
    section, _, key = name.partition(".")
    return getattr(getattr(settings, section), key)
