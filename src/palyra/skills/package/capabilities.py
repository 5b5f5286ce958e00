"""The requests of a skill. An operator's approval of the version makes them grants."""

import re
from enum import StrEnum
from typing import Final

import msgspec

from palyra.egress.domain.header_rules import accept_headers, fold_name
from palyra.egress.domain.injection import UNSCANNABLE
from palyra.egress.domain.rules import BadHostRule, HostRule
from palyra.skills import limits as most
from palyra.skills.limits import MAX_CAPABILITY_CHARS
from palyra.skills.package.toml_reader import ManifestTable
from palyra.vault.reference import ScopeKind, SecretRef, SecretScope
from palyra.wasm.domain.host_interface import HostRefusal, Status

# A prefix in the skill's own storage, in words that every file system spells alike.
_ROOT: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]*(?:/[A-Za-z0-9_][A-Za-z0-9._-]*)*")
CHANNEL_NAME: Final = re.compile(r"[a-z0-9][a-z0-9._-]*")
_KEY: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_ABILITY: Final = re.compile(r"[a-z][a-z0-9_.-]*")
STAR: Final = "*"
# Where every server expects a credential, and none keeps it to show it again.
_USUAL_HEADER: Final = "authorization"


class Wildcard(StrEnum):
    """Kinds of capability in which a star is allowed after opting in."""

    HTTP = "http"
    STORAGE = "storage"
    CHANNELS = "channels"


class WasiGroup(StrEnum):
    """Parts of WASI a module may link. All are stubs: files and sockets stay empty whatever is declared."""

    CLOCKS = "clocks"
    RANDOM = "random"
    STDIO = "stdio"
    ENVIRONMENT = "environment"
    FILESYSTEM = "filesystem"
    SOCKETS = "sockets"


class FilesystemRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Prefixes in the skill's own storage directory; a write root can be read as well."""

    read_roots: tuple[str, ...] = ()
    write_roots: tuple[str, ...] = ()


class Quotas(msgspec.Struct, frozen=True, kw_only=True):
    """None leaves the runtime's default."""

    fuel_budget: int | None = None
    max_memory_bytes: int | None = None
    timeout_ms: int | None = None
    storage_bytes: int | None = None
    http_requests: int | None = None


class Capabilities(msgspec.Struct, frozen=True, kw_only=True):
    """Lists are sorted, so that equal requests are equal values. Secrets are whole references."""

    filesystem: FilesystemRequest = FilesystemRequest()
    http_egress_allowlist: tuple[str, ...] = ()
    secrets: tuple[str, ...] = ()
    reveal_secrets: tuple[str, ...] = ()
    # Besides the usual one.
    secret_headers: tuple[str, ...] = ()
    channels: tuple[str, ...] = ()
    device: tuple[str, ...] = ()
    node: tuple[str, ...] = ()
    wasi: tuple[WasiGroup, ...] = ()
    quotas: Quotas = Quotas()
    wildcard_opt_in: tuple[Wildcard, ...] = ()

    def may_carry_secrets(self, header: str) -> bool:
        """Tell whether secrets may be attached to this header.

        With any header a skill could read the secret after all: from a server that keeps a header's value, such as a
        note about an object, and returns it later.
        """
        return fold_name(header) in (_USUAL_HEADER, *map(fold_name, self.secret_headers))


def read_capabilities(table: ManifestTable, skill_id: str) -> Capabilities:
    opted = table.texts("wildcard_opt_in", most=len(Wildcard), each=most.MAX_CAPABILITY_CHARS)
    for index, word in enumerate(opted):
        if word not in set(Wildcard):
            table.refuse(f"wildcard_opt_in knows {', '.join(Wildcard)}, not {word!r}", "wildcard_opt_in", index)
    wildcards = frozenset(map(Wildcard, opted))
    secrets = _secrets(table, "secrets", skill_id)
    reveal = _secrets(table, "reveal_secrets", skill_id)
    for index, ref in enumerate(reveal):
        if ref not in secrets:
            table.refuse(f"reveal_secrets names {ref}, which secrets does not", "reveal_secrets", index)
    found = Capabilities(
        filesystem=_filesystem(table.table("filesystem"), wildcards),
        http_egress_allowlist=_hosts(table, wildcards),
        secrets=tuple(sorted(secrets)),
        reveal_secrets=tuple(sorted(reveal)),
        secret_headers=_secret_headers(table, secrets),
        channels=tuple(sorted(_named(table, "channels", CHANNEL_NAME, wildcards, Wildcard.CHANNELS))),
        device=tuple(sorted(_named(table, "device", _ABILITY))),
        node=tuple(sorted(_named(table, "node", _ABILITY))),
        wasi=_wasi(table),
        quotas=_quotas(table.table("quotas")),
        wildcard_opt_in=tuple(sorted(wildcards)),
    )
    table.finish()
    return found


def _named(
    table: ManifestTable,
    key: str,
    pattern: re.Pattern[str],
    wildcards: frozenset[Wildcard] = frozenset(),
    kind: Wildcard | None = None,
) -> tuple[str, ...]:
    found = table.texts(key, most=most.MAX_LISTED_CAPABILITIES, each=most.MAX_CAPABILITY_CHARS)
    for index, word in enumerate(found):
        if STAR in word:
            _require_opt_in(table, key, index, word, kind if word == STAR else None, wildcards)
        elif not pattern.fullmatch(word):
            table.refuse(f"{key} may not list {word[:80]!r}", key, index)
    return found


def _require_opt_in(
    table: ManifestTable, key: str, index: int, word: str, kind: Wildcard | None, wildcards: frozenset[Wildcard]
) -> None:
    if kind is None:
        table.refuse(f"{key} may not list {word[:80]!r}: it has no such wildcards", key, index)
    if kind not in wildcards:
        table.refuse(
            f'{key} lists the wildcard {word[:80]!r} without capabilities.wildcard_opt_in = ["{kind}"]', key, index
        )


def _filesystem(table: ManifestTable, wildcards: frozenset[Wildcard]) -> FilesystemRequest:
    read = _named(table, "read_roots", _ROOT, wildcards, Wildcard.STORAGE)
    write = _named(table, "write_roots", _ROOT, wildcards, Wildcard.STORAGE)
    table.finish()
    return FilesystemRequest(read_roots=tuple(sorted(read)), write_roots=tuple(sorted(write)))


def _hosts(table: ManifestTable, wildcards: frozenset[Wildcard]) -> tuple[str, ...]:
    key = "http_egress_allowlist"
    texts = table.texts(key, most=most.MAX_LISTED_CAPABILITIES, each=most.MAX_CAPABILITY_CHARS)
    rules: list[str] = []
    for index, text in enumerate(texts):
        rule = table.parsed(key, text, HostRule.parse, index)
        if rule.below:
            _require_opt_in(table, key, index, text, Wildcard.HTTP, wildcards)
        if str(rule) in rules:
            table.refuse(f"{key} lists {rule} twice", key, index)
        rules.append(str(rule))
    return tuple(sorted(rules))


def _secrets(table: ManifestTable, key: str, skill_id: str) -> tuple[str, ...]:
    """``token`` is the skill's own; ``global/token`` is shared. Other scopes are not a skill's to ask for."""
    refs: list[str] = []
    for index, word in enumerate(table.texts(key, most=most.MAX_LISTED_CAPABILITIES, each=most.MAX_CAPABILITY_CHARS)):
        if _KEY.fullmatch(word):
            ref = SecretRef(SecretScope(ScopeKind.SKILL, skill_id), word)
        else:
            ref = table.parsed(key, word, SecretRef.parse, index)
        own = ref.scope == SecretScope(ScopeKind.SKILL, skill_id)
        if not own and ref.scope.kind is not ScopeKind.GLOBAL:
            table.refuse(f"{key} names {ref}, which is neither the skill's own nor global", key, index)
        if str(ref) in refs:
            table.refuse(f"{key} lists {ref} twice", key, index)
        refs.append(str(ref))
    return tuple(refs)


def _secret_headers(table: ManifestTable, secrets: tuple[str, ...]) -> tuple[str, ...]:
    key = "secret_headers"
    found = table.texts(key, most=most.MAX_LISTED_CAPABILITIES, each=most.MAX_CAPABILITY_CHARS)
    if found and not secrets:
        table.refuse(f"{key} says where secrets go, and secrets has none", key)
    seen: set[str] = set()
    for index, name in enumerate(found):
        table.parsed(key, name, lambda name: accept_headers({name: ""}), index)
        folded = fold_name(name)
        if folded in UNSCANNABLE:
            table.refuse(f"{key} lists {name}, which changes the form of the answer", key, index)
        if folded in seen:
            table.refuse(f"{key} lists {name} twice", key, index)
        seen.add(folded)
    return tuple(sorted(found))


def _wasi(table: ManifestTable) -> tuple[WasiGroup, ...]:
    found = table.texts("wasi", most=len(WasiGroup), each=most.MAX_CAPABILITY_CHARS)
    for index, word in enumerate(found):
        if word not in set(WasiGroup):
            table.refuse(f"wasi knows {', '.join(WasiGroup)}, not {word!r}", "wasi", index)
    return tuple(sorted(map(WasiGroup, found)))


def _quotas(table: ManifestTable) -> Quotas:
    found = Quotas(
        fuel_budget=table.integer("fuel_budget", least=1, most=most.MAX_FUEL_BUDGET),
        max_memory_bytes=table.integer("max_memory_bytes", least=1, most=most.MAX_MANIFEST_MEMORY_BYTES),
        timeout_ms=table.integer("timeout_ms", least=1, most=most.MAX_TIMEOUT_MS),
        storage_bytes=table.integer("storage_bytes", least=0, most=most.MAX_STORAGE_BYTES),
        http_requests=table.integer("http_requests", least=0, most=most.MAX_HTTP_REQUESTS),
    )
    table.finish()
    return found


# A handle whose grant has a star names no single host or channel, so the guest names it itself: a request's path
# begins with ``//HOST/`` (or ``//HOST:PORT/``), a message with a line that is the channel's name. The name has to fit
# the grant of that very handle.
_AUTHORITY = "//"


def host_meant(granted: str, path: str) -> tuple[HostRule, str]:
    """Return the one host of a request through the handle of ``granted``, and the path there."""
    rule = HostRule.parse(granted)
    if not rule.below:
        return rule, path
    if not path.startswith(_AUTHORITY):
        raise HostRefusal(Status.BAD_REQUEST)
    authority, _, rest = path.removeprefix(_AUTHORITY).partition("/")
    try:
        named = HostRule.parse(authority)
    except BadHostRule:
        raise HostRefusal(Status.BAD_REQUEST) from None
    if named.below:
        raise HostRefusal(Status.BAD_REQUEST)
    port = rule.port if named.port is None else named.port
    if not rule.covers(named.host, port):
        raise HostRefusal(Status.DENIED)
    return HostRule(named.host, port), f"/{rest}"


def host_named(granted: str, path: str) -> str:
    """Return the host of a request as the manifest writes it, or, if that has a star, as the guest did: for display."""
    if not HostRule.parse(granted).below or not path.startswith(_AUTHORITY):
        return granted
    return path.removeprefix(_AUTHORITY).partition("/")[0]


def channel_meant(granted: str, text: str) -> tuple[str, str]:
    """Return the channel of a message through the handle of ``granted``, and the message itself."""
    if granted != STAR:
        return granted, text
    channel, _, message = text.partition("\n")
    if len(channel) > MAX_CAPABILITY_CHARS or not CHANNEL_NAME.fullmatch(channel):
        raise HostRefusal(Status.BAD_REQUEST)
    return channel, message
