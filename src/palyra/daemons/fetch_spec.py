"""http.fetch as the catalog has it: what it can touch, what it takes of a budget. What fetches is in ``fetch_tool``."""

from collections.abc import Callable, Mapping
from typing import Any

from palyra.config.settings import EgressSettings
from palyra.egress.refusal import HostNotAllowed
from palyra.egress.rules import find_rule, parse_rules
from palyra.fetch import tool
from palyra.fetch.request import FetchRequest
from palyra.tools.budget import BudgetKind
from palyra.tools.spec import ToolCapability, ToolMetadata, ToolName, ToolSpec, Touches


def fetch_spec(settings: EgressSettings | None) -> ToolSpec:
    """Without settings the spec describes the tool and judges no host."""
    capabilities = {ToolCapability.NETWORK}
    if settings is not None and settings.bindings:
        capabilities.add(ToolCapability.SECRETS_READ)
    return ToolSpec(
        name=ToolName(tool.NAME),
        title=tool.TITLE,
        description=tool.DESCRIPTION,
        input_schema=tool.INPUT_SCHEMA,
        output_schema=tool.OUTPUT_SCHEMA,
        metadata=ToolMetadata(capabilities=frozenset(capabilities)),
        executor=tool.EXECUTOR,
        # Every connection is judged, whatever mode of egress is asked for, and no file is touched.
        enforceable=frozenset(("timeout_ms", "max_output_bytes", "egress", "read_only")),
        touches=_touches_of(settings),
        reserves=lambda arguments: {BudgetKind.EGRESS_BYTES: tool.most_wire_bytes(arguments)},
    )


def _touches_of(settings: EgressSettings | None) -> Callable[[Mapping[str, Any]], Touches]:
    def touches(arguments: Mapping[str, Any]) -> Touches:
        """Raises what would refuse the call anyway, so that nobody is asked to approve what cannot happen."""
        request = FetchRequest.parse(arguments)
        secrets = dict.fromkeys(request.placeholders)
        if settings is not None:
            target = request.address.target
            if find_rule(parse_rules(settings.allowed_hosts), target.host, target.port) is None:
                raise HostNotAllowed(
                    f"{target.authority} is not among the allowed hosts", host=target.host, port=target.port
                )
            for binding in settings.bindings:
                if binding.covers(target, request.method, request.address.path):
                    secrets[binding.secret_ref] = None
        return Touches(hosts=(tool.touched_host(request),), secrets=tuple(secrets))

    return touches
