"""From messages to values. What the service does with them is in tests/contract/test_node_rpc.py."""

import pytest

from palyra.devicelink.limits import MAX_CAPABILITIES
from palyra.nodes.domain.records import DeviceCapabilityView
from palyra.nodes.domain.requests import Refused, Succeeded
from palyra.nodes.server.rpc import TooManyNamed, _capabilities, _result
from palyra.wire.node.v1 import node_pb2 as wire


def test_capabilities_are_read_up_to_their_bound() -> None:
    offer = wire.Capability(name="a", description="d", input_schema_json="{}", local_mediation=True, idempotent=True)
    assert _capabilities([offer]) == (
        DeviceCapabilityView(
            name="a", description="d", input_schema_json="{}", local_mediation=True, idempotent=True, withheld=False
        ),
    )
    with pytest.raises(TooManyNamed):
        _capabilities([offer] * (MAX_CAPABILITIES + 1))


def test_a_result_is_an_output_or_a_failure_and_nothing_at_all_is_a_failure() -> None:
    request = wire.ReportCapabilityResultRequest
    assert _result(request(output_json=b"1")) == Succeeded(b"1")
    # An empty output is an output, and no JSON.
    assert _result(request(output_json=b"")) == Succeeded(b"")
    rejected = wire.CapabilityFailure(kind="rejected", code="c", message="m")
    assert _result(request(failure=rejected)) == Refused(rejected=True, code="c", message="m")
    assert _result(request(failure=wire.CapabilityFailure(kind="other"))) == Refused(False, "", "")
    assert _result(request()) == Refused(False, "", "")
