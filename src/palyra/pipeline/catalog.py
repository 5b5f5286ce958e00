"""The catalog of tools, with their schemas compiled once."""

from collections.abc import Iterable

from palyra.json_schema import SchemaCheck
from palyra.pipeline.domain.call import UnknownTool
from palyra.pipeline.domain.spec import SKILL_TOOLS, ToolSpec

NOT_IN_USE = (
    "a skill's tools are there while an operator has it in use: `palyra tools list` shows those, `palyra skill list`"
    " what is installed"
)


class CatalogEntry:
    """A tool and its two checks, compiled at first use."""

    __slots__ = ("_input", "_output", "spec")

    def __init__(self, spec: ToolSpec) -> None:
        self.spec = spec
        self._input: SchemaCheck | None = None
        self._output: SchemaCheck | None = None

    @property
    def input_check(self) -> SchemaCheck:
        if self._input is None:
            self._input = SchemaCheck(self.spec.input_schema)
        return self._input

    @property
    def output_check(self) -> SchemaCheck:
        if self._output is None:
            self._output = SchemaCheck(self.spec.output_schema)
        return self._output


class Catalog:
    """Tools that are always there, and groups of tools that come and go, such as those of skills."""

    def __init__(self, specs: Iterable[ToolSpec]) -> None:
        self._fixed = _entries(specs)
        self._groups: dict[str, dict[str, CatalogEntry]] = {}
        self._entries = self._fixed

    def replace_group(self, group: str, specs: Iterable[ToolSpec]) -> None:
        """Replace the group's former tools, all at once.

        A spec that is the same object keeps its compiled schemas.
        """
        before = self._groups.get(group, {})
        entries = _entries(specs)
        for name, entry in entries.items():
            if name in before and before[name].spec is entry.spec:
                entries[name] = before[name]
        groups = {**self._groups, group: entries}
        together = dict(self._fixed)
        for one in groups.values():
            if taken := sorted(together.keys() & one.keys()):
                raise ValueError(f"two tools are named {taken[0]}")
            together |= one
        # One assignment: a concurrent lookup sees the old catalog or the new one.
        self._groups, self._entries = groups, together

    def __contains__(self, name: object) -> bool:
        return name in self._entries

    def entry(self, name: str) -> CatalogEntry:
        try:
            return self._entries[name]
        except KeyError:
            hint = NOT_IN_USE if name.startswith(SKILL_TOOLS) else None
            raise UnknownTool(f"there is no tool named {name[:128]!r}", hint=hint, tool=name[:128]) from None

    def specs(self) -> list[ToolSpec]:
        entries = self._entries
        return [entries[name].spec for name in sorted(entries)]


def _entries(specs: Iterable[ToolSpec]) -> dict[str, CatalogEntry]:
    entries: dict[str, CatalogEntry] = {}
    for spec in specs:
        if spec.name in entries:
            raise ValueError(f"two tools are named {spec.name}")
        entries[spec.name] = CatalogEntry(spec)
    return entries
