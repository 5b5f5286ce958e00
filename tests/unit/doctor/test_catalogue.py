"""The catalogue as data: it is complete, every attempt can be made, and none names what is not bait."""

import ipaddress
import re
from collections import Counter
from typing import Any

import msgspec
import pytest

from palyra.doctor.attacks.attempt import AttackClass, Attempt
from palyra.doctor.attacks.catalogue import ATTEMPTS, attempts_in
from palyra.doctor.attacks.probes.program import PROBES
from palyra.sandbox.domain.process_run import SandboxProcessRunErrorKind
from palyra.sandbox.domain.profile import TIER_B_LAYERS, TIER_C_LAYERS, Layer, SandboxLimits, SandboxTier
from palyra.sandbox.layers.syscall_table import SYSCALLS


def test_there_are_many_and_each_has_a_name_of_its_own() -> None:
    assert not [name for name, count in Counter(each.id for each in ATTEMPTS).items() if count > 1]
    assert not [title for title, count in Counter(each.title for each in ATTEMPTS).items() if count > 1]
    assert len(attempts_in(SandboxTier.C)) >= 150
    assert len(attempts_in(SandboxTier.B)) >= 150
    assert {each.kind for each in ATTEMPTS} == set(AttackClass)


def test_tier_c_promises_to_stop_all_of_them() -> None:
    assert [each.id for each in ATTEMPTS if not each.c] == []


def test_tier_b_does_not_promise_what_it_has_no_layer_for() -> None:
    unpromised = {each.id for each in attempts_in(SandboxTier.B) if not each.b}
    assert {"network.udp", "files.git_config", "processes.shared_memory", "files.chmod_outside"} <= unpromised
    namespaces = {layer for layer in Layer if layer.endswith("_namespace")}
    for each in attempts_in(SandboxTier.B):
        assert not namespaces & set(each.b or ())


@pytest.mark.parametrize("attempt", ATTEMPTS, ids=lambda each: each.id)
def test_an_attempt_is_complete(attempt: Attempt) -> None:
    assert re.fullmatch(r"[a-z]+\.[a-z0-9_]+", attempt.id)
    assert bool(attempt.probe) != bool(attempt.command)
    assert attempt.probe in PROBES or attempt.command
    assert attempt.c is not None or attempt.b is not None
    msgspec.convert(attempt.limits, SandboxLimits)
    codes = {f"sandbox.{kind}" for kind in SandboxProcessRunErrorKind}
    assert set(attempt.refused_by) <= codes
    if attempt.command:
        assert attempt.refused_by
    if attempt.probe == "syscall":
        assert attempt.arguments["call"] in SYSCALLS["x86_64"]
    msgspec.json.encode(attempt)


def strings(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]
    if isinstance(value, dict):
        return [text for each in value.values() for text in strings(each)]
    if isinstance(value, list | tuple):
        return [text for each in value for text in strings(each)]
    return []


# The one host that is named in an argument, which the guard refuses before anything starts. It is for documentation.
NAMED = {"192.0.2.1"}


@pytest.mark.parametrize("attempt", ATTEMPTS, ids=lambda each: each.id)
def test_no_attempt_names_an_address_that_could_be_somebodys(attempt: Attempt) -> None:
    for text in strings([attempt.arguments, list(attempt.command), [list(pair) for pair in attempt.env]]):
        for found in re.findall(r"\d+\.\d+\.\d+\.\d+", text):
            assert found in NAMED or ipaddress.ip_address(found).is_loopback


WRITING = {"write", "create", "truncate", "chmod", "utime", "rename", "unlink", "hard_link", "new_symlink", "reopen"}


@pytest.mark.parametrize("attempt", [each for each in ATTEMPTS if each.probe in WRITING], ids=lambda each: each.id)
def test_what_writes_names_only_bait(attempt: Attempt) -> None:
    for key in ("path", "to"):
        path = attempt.arguments.get(key, "")
        assert not path.startswith("/") or path.startswith("/proc/1/root{workspace}/")


def test_every_layer_that_a_tier_demands_has_an_attempt_against_it() -> None:
    attacked = {
        tier: {layer for each in attempts_in(tier) for layer in each.promise(tier) or ()} for tier in SandboxTier
    }
    # A session of its own and a name of the host's own are seen in the receipt; nothing hangs on them alone.
    assert TIER_C_LAYERS - attacked[SandboxTier.C] <= {Layer.NEW_SESSION, Layer.UTS_NAMESPACE}
    assert attacked[SandboxTier.B] >= TIER_B_LAYERS
