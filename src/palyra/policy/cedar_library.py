"""cedarpy as Palyra uses it. Its typed tree of a policy is loaded by whoever looks at it, which is nobody here: making
those classes takes as long as the rest of the library.
"""

import sys
from importlib.machinery import PathFinder
from importlib.util import find_spec, module_from_spec
from types import ModuleType
from typing import Any, Final

_TREE: Final = "cedarpy.pst"


class _LoadedWhenLookedAt(ModuleType):
    # Not the standard library's lazy loader: that one loads as soon as an import statement names the module.
    def __getattr__(self, name: str) -> Any:
        spec = self.__spec__
        if name.startswith("__") or spec is None or spec.loader is None:
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        spec.loader.exec_module(self)
        self.__class__ = ModuleType  # type: ignore[assignment]
        return getattr(self, name)


def _leave_the_tree_for_later() -> None:
    package = find_spec("cedarpy")
    tree = None if package is None else PathFinder.find_spec(_TREE, package.submodule_search_locations)
    if tree is not None and _TREE not in sys.modules:
        module = module_from_spec(tree)
        module.__class__ = _LoadedWhenLookedAt
        sys.modules[_TREE] = module


_leave_the_tree_for_later()

import cedarpy as cedarpy  # noqa: E402
