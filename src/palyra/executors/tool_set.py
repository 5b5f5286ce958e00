"""The catalog of the tools that this build has."""

from collections.abc import Callable, Sequence

from palyra.egress.settings import EgressSettings
from palyra.executors import builtin
from palyra.executors.browser.spec import browser_specs
from palyra.executors.fetch.spec import fetch_spec
from palyra.executors.files.spec import FILE_TOOLS
from palyra.executors.node.spec import Devices, node_invoke_spec
from palyra.executors.process.tools import build_process_specs
from palyra.executors.wasm.spec import plugin_run_spec
from palyra.pipeline.catalog import Catalog
from palyra.pipeline.domain.spec import ToolSpec
from palyra.sandbox.settings import SandboxSettings
from palyra.wasm.settings import WasmSettings


def builtin_catalog(
    sandbox: SandboxSettings | None = None,
    egress: EgressSettings | None = None,
    wasm: WasmSettings | None = None,
    devices: Callable[[], Devices] | None = None,
    browser: Sequence[ToolSpec] | None = None,
) -> Catalog:
    return Catalog(
        [
            *builtin.SPECS,
            *(tool.spec for tool in FILE_TOOLS.values()),
            *build_process_specs(sandbox or SandboxSettings(), egress),
            fetch_spec(egress),
            plugin_run_spec(wasm or WasmSettings()),
            node_invoke_spec(devices),
            *(browser_specs(None) if browser is None else browser),
        ]
    )
