"""Receipts: order, the last look, and the refusal of what did not hold."""

import pytest

from palyra.sandbox.domain.profile import Layer, Receipt, ReceiptLine, UnsupportedPlatform, refuse_unmet, unsupported


def line(layer: Layer, *, held: bool = True, got: str = "seen") -> ReceiptLine:
    return ReceiptLine(layer=layer, asked="asked", got=got, held=held)


def test_lines_are_in_the_order_of_layers_and_the_last_look_stands() -> None:
    receipt = Receipt.of([line(Layer.SECCOMP, got="old"), line(Layer.PID_NAMESPACE)])
    receipt = receipt.with_lines([line(Layer.SECCOMP, got="new")])
    assert [each["layer"] for each in receipt.as_dicts()] == ["pid_namespace", "seccomp"]
    assert receipt.as_dicts()[1] == {"layer": "seccomp", "asked": "asked", "got": "new", "held": True}
    assert receipt.line(Layer.EGRESS) is None


def test_what_is_required_and_held_passes() -> None:
    refuse_unmet(Receipt.of([line(Layer.SECCOMP), line(Layer.EGRESS, held=False)]), frozenset({Layer.SECCOMP}))


def test_a_required_layer_that_failed_or_was_not_mentioned_is_named() -> None:
    receipt = Receipt.of([line(Layer.SECCOMP, held=False, got="Seccomp 0")])
    with pytest.raises(UnsupportedPlatform) as refused:
        refuse_unmet(receipt, frozenset({Layer.SECCOMP, Layer.CGROUP_PIDS}))
    assert refused.value.code == "sandbox.unsupported_platform"
    assert refused.value.details == {"kind": "unsupported_platform", "layers": ["seccomp", "cgroup_pids"]}
    assert "Seccomp 0" in refused.value.message
    assert "cgroup_pids: not enforced" in refused.value.message


def test_a_fix_becomes_the_hint() -> None:
    error = unsupported([line(Layer.SECCOMP, held=False)], {Layer.SECCOMP: "do this"})
    assert error.hint == "do this"
