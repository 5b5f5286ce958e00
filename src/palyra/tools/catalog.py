"""The tools there are, with their schemas compiled once."""

from collections.abc import Iterable

from palyra.tools.call import UnknownTool
from palyra.tools.schema_check import SchemaCheck
from palyra.tools.spec import ToolSpec


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
    def __init__(self, specs: Iterable[ToolSpec]) -> None:
        self._entries: dict[str, CatalogEntry] = {}
        for spec in specs:
            if spec.name in self._entries:
                raise ValueError(f"two tools are named {spec.name}")
            self._entries[spec.name] = CatalogEntry(spec)

    def entry(self, name: str) -> CatalogEntry:
        try:
            return self._entries[name]
        except KeyError:
            raise UnknownTool(f"there is no tool named {name[:128]!r}", tool=name[:128]) from None

    def specs(self) -> list[ToolSpec]:
        return [self._entries[name].spec for name in sorted(self._entries)]
