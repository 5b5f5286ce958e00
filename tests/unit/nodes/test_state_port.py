"""That both stores are what the port says is tests/contract/test_node_state_port.py; here is what mypy would say."""

import inspect

import pytest

from palyra.nodes.store.file import NodeRuntimeState
from palyra.nodes.store.node_tables import SqlNodeState
from palyra.nodes.store.port import NodeState, NodeStateUnreadable


@pytest.mark.parametrize("backend", [SqlNodeState, NodeRuntimeState])
def test_a_store_has_the_ports_methods_as_the_port_has_them(backend):
    for name in ("transact", "read"):
        expected = list(inspect.signature(getattr(NodeState, name)).parameters)
        assert list(inspect.signature(getattr(backend, name)).parameters) == expected


def test_an_unreadable_state_says_what_to_do():
    assert "node-runtime.v1.json" in NodeStateUnreadable("x").hint
