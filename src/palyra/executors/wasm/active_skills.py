"""The skills in use, kept up to date with the registry: their tools in the catalog, their modules compiled once.

The registry's revision is read before every call of a skill's tool and every listing. So changes of other processes
take effect at once too.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from palyra.egress.settings import EgressSettings
from palyra.errors import PalyraError
from palyra.executors.wasm.skill_tools import ActiveTool, active_tools
from palyra.pipeline.catalog import Catalog
from palyra.skills.registry.records import NotRunnable, ResolvedInstalledSkillModule
from palyra.skills.registry.registry import SkillRegistry
from palyra.wasm.domain.outcome import NotCompiled
from palyra.wasm.runtime import CompiledModule
from palyra.wasm.settings import WasmSettings

_LOG = logging.getLogger("palyra.skills")
GROUP: Final = "skills"
_NEVER: Final = -1
Compile = Callable[[bytes], Awaitable[CompiledModule]]


class ActiveSkills:
    def __init__(
        self, registry: SkillRegistry, catalog: Catalog, wasm: WasmSettings, egress: EgressSettings, *, actor: str
    ) -> None:
        self._registry = registry
        self._catalog = catalog
        self._wasm = wasm
        self._egress = egress
        self._actor = actor
        self._revision = _NEVER
        self._changing = asyncio.Lock()
        self._tools: dict[str, ActiveTool] = {}
        # By the module's digest: its bytes until it is compiled, then the compiled module.
        self._bytes: dict[str, bytes] = {}
        self._compiled: dict[str, CompiledModule] = {}

    async def refresh(self) -> None:
        """Read the registry again if its revision has changed."""
        if not self._wasm.enabled or self._registry.index.revision() == self._revision:
            return
        async with self._changing:
            revision = self._registry.index.revision()
            if revision != self._revision:
                self._take(await self._registry.active_modules(actor=self._actor))
                self._revision = revision

    def _take(self, modules: tuple[ResolvedInstalledSkillModule, ...]) -> None:
        tools: dict[str, ActiveTool] = {}
        for module in modules:
            for active in active_tools(module, self._wasm, self._egress):
                tools[str(active.spec.name)] = active
        self._catalog.replace_group(GROUP, [active.spec for active in tools.values()])
        self._tools = tools
        kept = {module.module_digest: module.module_bytes for module in modules}
        self._compiled = {digest: module for digest, module in self._compiled.items() if digest in kept}
        self._bytes = {digest: data for digest, data in kept.items() if digest not in self._compiled}

    def tool(self, name: str, digest: str) -> ActiveTool:
        """Return the tool that a call was decided on. Its archive must still be the one in use."""
        active = self._tools.get(name)
        if active is None or active.module.digest != digest:
            raise NotRunnable(f"{name} is not in use any more as it was decided on", digest=digest)
        self._registry.require_runnable(active.module.skill_id, digest)
        return active

    def module_of(self, skill_id: str, name: str) -> ResolvedInstalledSkillModule:
        """Return a module of a skill in use by its file name, or its first module."""
        for active in self._tools.values():
            module = active.module
            if module.skill_id == skill_id and name in ("", module.module):
                self._registry.require_runnable(skill_id, module.digest)
                return module
        which = f" with the module {name[:80]!r}" if name else ""
        raise NotRunnable(f"no skill in use is {skill_id[:80]!r}{which}", skill_id=skill_id[:80])

    @property
    def has_uncompiled(self) -> bool:
        return bool(self._bytes)

    async def compiled(self, module: ResolvedInstalledSkillModule, compile_module: Compile) -> CompiledModule:
        known = self._compiled.get(module.module_digest)
        if known is not None:
            return known
        data = self._bytes.get(module.module_digest)
        if data is None:
            raise NotCompiled(f"the module {module.module} of {module.skill_id} is not at hand")
        compiled = await compile_module(data)
        if compiled.digest != module.module_digest:
            raise NotRunnable(f"{module.skill_id} has another module than was approved", digest=module.digest)
        if self._bytes.pop(module.module_digest, None) is not None:
            self._compiled[module.module_digest] = compiled
        return compiled

    def forget_compiled(self) -> None:
        """Have archives read and verified again, for a runtime without their compiled modules."""
        self._compiled.clear()
        self._revision = _NEVER

    async def prepare(self, compile_module: Compile) -> None:
        """Compile every module in advance. A module that fails here fails again in its call."""
        try:
            await self.refresh()
            for active in tuple(self._tools.values()):
                await self.compiled(active.module, compile_module)
        except PalyraError as error:
            _LOG.warning("skills could not be prepared: %s", error.message)
        except Exception:
            # The daemon has more to offer than skills.
            _LOG.exception("skills could not be prepared")
