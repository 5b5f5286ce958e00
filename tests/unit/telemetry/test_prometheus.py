"""What /metrics tells, and that no caller can make it grow."""

from pathlib import Path
from typing import Any

import pytest

from fakes.gateway_harness import open_harness
from palyra.egress.domain.events import Closed, Connected, CredentialUsed, Refused
from palyra.egress.domain.refusal import HostNotAllowed
from palyra.egress.domain.target import Target
from palyra.egress.metrics import EgressMetrics
from palyra.pipeline.domain.call import CallRecord, CallState
from palyra.pipeline.observe import CallMetrics
from palyra.telemetry.prometheus import PrometheusMetrics


def a_record(**changes: Any) -> CallRecord:
    fields: dict[str, Any] = {
        "call_id": "c",
        "run_id": "r",
        "tool": "echo",
        "principal": "agent:bot",
        "actor": "a",
        "channel": "cli",
        "state": CallState.SUCCEEDED,
        "created_ms": 0,
    }
    return CallRecord(**{**fields, **changes})


def rendered(metrics: PrometheusMetrics) -> list[str]:
    return metrics.render().decode().splitlines()


def test_calls_are_counted_by_tool_and_ending() -> None:
    metrics = PrometheusMetrics()
    calls = CallMetrics(metrics.registry, {"echo"})
    calls.count(a_record(started_ms=1_000, ended_ms=1_250))
    calls.count(a_record(state=CallState.DENIED, error={"code": "call.denied"}))
    lines = rendered(metrics)
    assert 'palyra_calls_total{state="succeeded",tool="echo"} 1.0' in lines
    assert 'palyra_calls_total{state="denied",tool="echo"} 1.0' in lines
    assert 'palyra_call_errors_total{code="call.denied"} 1.0' in lines
    assert 'palyra_call_seconds_sum{tool="echo"} 0.25' in lines


@pytest.mark.promise("P-floods")
def test_names_that_callers_make_up_share_one_label() -> None:
    metrics = PrometheusMetrics()
    calls = CallMetrics(metrics.registry, {"echo"})
    for number in range(1_000):
        calls.count(a_record(tool=f"made.up{number}", state=CallState.REFUSED))
    lines = rendered(metrics)
    assert 'palyra_calls_total{state="refused",tool="unknown"} 1000.0' in lines
    assert len(lines) < 80 and not any("made.up" in line for line in lines)


def test_reloads_and_gauges() -> None:
    metrics = PrometheusMetrics()
    readings = iter((3.0, 4.0))
    metrics.watch("palyra_test", "A test.", lambda: next(readings))
    metrics.policy_reloaded("rejected")
    lines = rendered(metrics)
    assert "palyra_test 3.0" in lines and 'palyra_policy_reloads_total{outcome="rejected"} 1.0' in lines
    assert "palyra_test 4.0" in rendered(metrics), "a gauge is read when somebody looks"


@pytest.mark.promise("P-floods")
async def test_a_running_gateway_tells_its_head_and_what_waits(tmp_path: Path) -> None:
    async with open_harness(tmp_path) as harness:
        await harness.call("echo", {"text": "secret text of a call"})
        await harness.call("fs.write", {"path": "private-name.txt", "content": "x"})
        text = harness.gateway.metrics.render().decode()
        assert "palyra_approvals_pending 1.0" in text and "palyra_calls_running 0.0" in text
        assert f"palyra_journal_head_seq {float(harness.gateway.store.head()[0])}" in text
        for private in ("agent:bot", "secret text", "private-name", "user:operator"):
            assert private not in text, "metrics are read without a token"


def test_egress_is_counted_without_names_of_hosts() -> None:
    metrics = PrometheusMetrics()
    egress = EgressMetrics(metrics.registry)
    target = Target.of("site.test", 443, scheme="https")
    egress.count(Connected(target=target, address="192.0.2.1", face="connect"))
    egress.count(Closed(target=target, up=5, down=7, reason="done"))
    egress.count(Refused.of(HostNotAllowed("no", host="evil.test"), "socks5"))
    egress.count(CredentialUsed(target=target, secret_ref="global/k", header_name="X", method="GET", path="/"))
    shown = metrics.render().decode()
    assert 'palyra_egress_connections_total{face="connect"} 1.0' in shown
    assert 'palyra_egress_refusals_total{code="egress.host_not_allowed",face="socks5"} 1.0' in shown
    assert "palyra_egress_violations_total 1.0" in shown
    assert 'palyra_egress_bytes_total{direction="up"} 5.0' in shown
    assert "palyra_egress_credential_uses_total 1.0" in shown
    assert ".test" not in shown and "global/k" not in shown
