import pytest

from palyra.vault.limits import MAX_KEY_CHARS, MAX_REF_CHARS
from palyra.vault.reference import InvalidSecretRef, ScopeKind, SecretRef, SecretScope


@pytest.mark.parametrize(
    ("text", "kind", "owner", "key"),
    [
        ("global/github", ScopeKind.GLOBAL, "", "github"),
        ("principal:agent:bot/API_KEY", ScopeKind.PRINCIPAL, "agent:bot", "API_KEY"),
        ("principal:user:team/alice/k.1-2", ScopeKind.PRINCIPAL, "user:team/alice", "k.1-2"),
        ("channel:mcp/k", ScopeKind.CHANNEL, "mcp", "k"),
        ("skill:acme.mail/k", ScopeKind.SKILL, "acme.mail", "k"),
    ],
)
def test_a_ref_reads_back_as_it_is_written(text: str, kind: ScopeKind, owner: str, key: str) -> None:
    ref = SecretRef.parse(text)
    assert (ref.scope, ref.key) == (SecretScope(kind, owner), key)
    assert str(ref) == text


@pytest.mark.parametrize(
    "text",
    ["", "/", "global", "global/", "/key", "Global/k", "global:x/k", "GLOBAL/k", "principal/k", "principal:/k",
     "principal:bot/k", "principal:robot:x/k", "principal:agent:/k", "channel:/k", "skill: x/k", "other:x/k",
     "global/../k", "principal:agent:bot/../k", "principal:agent:a/./b/k", "principal:agent:a//b/k", "channel:a//k",
     "global/k k", "global/k\n", "global/k\0", "global/-k", "global/.", "global/..", "global/kéy", "skill:a\u202eb/k",
     "global/" + "k" * (MAX_KEY_CHARS + 1), "skill:" + "s" * MAX_REF_CHARS + "/k", "global//k", " global/k"],
)  # fmt: skip
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(InvalidSecretRef) as caught:
        SecretRef.parse(text)
    assert caught.value.code == "vault.invalid_ref"


def test_a_scope_may_stand_alone_for_listing() -> None:
    assert str(SecretScope.parse("channel:api")) == "channel:api"
    with pytest.raises(InvalidSecretRef):
        SecretScope.parse("channel")
