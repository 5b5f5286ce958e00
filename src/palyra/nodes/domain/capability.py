"""Capabilities: the checked inventory of a device, and the choice of a device for a call."""

import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec

from palyra.devicelink import limits
from palyra.devicelink.limits import MAX_CAPABILITIES
from palyra.errors import Denied, InvalidInput, Unavailable
from palyra.json_schema import InvalidSchema, SchemaCheck, SchemaMismatch
from palyra.nodes.domain.records import DeviceCapabilityView, NodeRecord
from palyra.strict_json import parse_strict

# A device may report a plain subset of JSON Schema, which takes about as long to check as the input to read.
#
# A device must not waste the daemon's time. With nested references, nested alternatives or costly patterns a schema of
# one kilobyte can take hours, so all of them are refused.

# Each value of an input is compared with every choice.
MAX_CHOICES: Final = 256
_PROPERTIES: Final = "properties"
_ITEMS: Final = "items"
_CHOICES: Final = "enum"
_OTHERS: Final = "additionalProperties"
KEYWORDS: Final = frozenset(
    (
        *("$schema", "title", "description", "default", "examples", "type", "const", "required"),
        *("minLength", "maxLength", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"),
        *("minItems", "maxItems", "minProperties", "maxProperties", _PROPERTIES, _ITEMS, _CHOICES, _OTHERS),
    )
)


class CostlySchema(InvalidInput):
    code = "nodes.costly_schema"
    hint = "use types, properties, items, enum and limits: no references, patterns or alternatives"


def require_plain(schema: Mapping[str, Any]) -> None:
    """Raise CostlySchema for a keyword outside the subset. The compiler finds other faults of a schema."""
    for keyword, value in schema.items():
        if keyword not in KEYWORDS:
            raise CostlySchema(f"{keyword[:32]!r} is not accepted from a device")
        if keyword == _PROPERTIES and isinstance(value, dict):
            for inner in value.values():
                _require_inner(inner)
        elif keyword == _ITEMS:
            _require_inner(value)
        elif keyword == _OTHERS and not isinstance(value, bool):
            raise CostlySchema("additionalProperties is true or false")
        elif keyword == _CHOICES and isinstance(value, list) and len(value) > MAX_CHOICES:
            raise CostlySchema(f"an enum has at most {MAX_CHOICES} values")


def _require_inner(value: Any) -> None:
    if isinstance(value, dict):
        require_plain(value)


_NAME: Final = re.compile(r"[a-z][a-z0-9_-]*(\.[a-z0-9][a-z0-9_-]*)*")
# People see text of devices, so characters that control a terminal, reverse the reading order or stay invisible are
# removed: controls, formats, surrogates, private and unassigned ones, line and paragraph separators.
_HIDDEN: Final = frozenset(("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"))


class BadInventory(InvalidInput):
    code = "nodes.bad_inventory"
    hint = "a capability has a name such as system.health, and a plain JSON Schema or none"


class UnknownDevice(InvalidInput):
    code = "nodes.unknown_device"
    hint = "`palyra node list` shows the devices there are"
    http_status = 404


class AmbiguousDevice(InvalidInput):
    code = "nodes.ambiguous_device"
    hint = "several devices have this name: use the id"


class NoCapableDevice(Unavailable):
    code = "nodes.no_capable_device"
    hint = "`palyra node list` shows which devices are connected and what they offer"


class CapabilityMissing(Unavailable):
    code = "nodes.capability_missing"
    hint = "`palyra node show DEVICE` lists what it offers"


class CapabilityWithheld(Denied):
    code = "nodes.capability_withheld"
    hint = "an operator took it away; `palyra node allow DEVICE CAPABILITY` gives it back"


class InputMismatch(InvalidInput):
    code = "nodes.input_mismatch"
    hint = "`palyra node show DEVICE` prints the schema of each capability"


def is_name(text: str) -> bool:
    return len(text) <= limits.MAX_CAPABILITY_NAME_CHARS and _NAME.fullmatch(text) is not None


def readable(text: str, most: int) -> str:
    """Make a device's text safe to store and show: one line, bounded."""
    return "".join(" " if unicodedata.category(char) in _HIDDEN else char for char in text[:most]).strip()


def accept_inventory(
    reported: Iterable[DeviceCapabilityView], withheld: Sequence[str], known: Iterable[DeviceCapabilityView] = ()
) -> tuple[DeviceCapabilityView, ...]:
    """Check an inventory. Return it sorted by name, with the operator's restrictions.

    Schemas of ``known`` capabilities were accepted before and are not compiled again.
    """
    compiled = {one.input_schema_json for one in known}
    accepted: dict[str, DeviceCapabilityView] = {}
    size = 0
    for one in reported:
        if len(accepted) >= MAX_CAPABILITIES:
            raise BadInventory(f"a device may have {MAX_CAPABILITIES} capabilities")
        if not is_name(one.name):
            raise BadInventory(f"{one.name[:64]!r} is not a capability's name")
        if one.name in accepted:
            raise BadInventory(f"{one.name} is reported twice")
        if one.input_schema_json not in compiled:
            _check_schema(one)
        size += len(one.input_schema_json)
        if size > limits.MAX_INVENTORY_BYTES:
            raise BadInventory(f"the schemas together are longer than {limits.MAX_INVENTORY_BYTES} bytes")
        accepted[one.name] = msgspec.structs.replace(
            one,
            description=readable(one.description, limits.MAX_DESCRIPTION_CHARS),
            withheld=one.name in withheld,
        )
    return tuple(accepted[name] for name in sorted(accepted))


def _check_schema(one: DeviceCapabilityView) -> None:
    if not one.input_schema_json:
        return
    if len(one.input_schema_json.encode()) > limits.MAX_SCHEMA_BYTES:
        raise BadInventory(f"the schema of {one.name} is longer than {limits.MAX_SCHEMA_BYTES} bytes")
    try:
        schema = parse_strict(one.input_schema_json)
        if not isinstance(schema, dict):
            raise BadInventory(f"the schema of {one.name} is not an object")
        require_plain(schema)
        SchemaCheck(schema)
    except (InvalidInput, InvalidSchema) as error:
        if isinstance(error, BadInventory):
            raise
        raise BadInventory(f"the schema of {one.name} is unusable: {error.message}") from error


def withhold(node: NodeRecord, name: str, *, withheld: bool) -> NodeRecord:
    """Withhold or allow one capability, which the device need not offer at present."""
    if not is_name(name):
        raise BadInventory(f"{name[:64]!r} is not a capability's name")
    names = {*node.withheld, name} if withheld else set(node.withheld) - {name}
    return msgspec.structs.replace(
        node,
        withheld=tuple(sorted(names)),
        capabilities=tuple(msgspec.structs.replace(one, withheld=one.name in names) for one in node.capabilities),
    )


def find_device(nodes: Sequence[NodeRecord], asked: str) -> NodeRecord:
    """Find a device by id, or by its name at pairing, which an operator saw and the device cannot change."""
    paired = [node for node in nodes if node.revoked_ms is None]
    exact = [node for node in paired if node.id == asked]
    found = exact or [node for node in paired if node.name == asked]
    if not found:
        raise UnknownDevice(f"there is no paired device {asked[:64]!r}", device=asked[:64])
    if len(found) > 1:
        raise AmbiguousDevice(
            f"{len(found)} devices are named {asked[:64]!r}", devices=[str(node.id) for node in found]
        )
    return found[0]


def choose_device(nodes: Sequence[NodeRecord], connected: Iterable[str], capability: str) -> NodeRecord:
    """Choose the connected device that offers the capability and was paired first.

    The choice is stable, so that an approval of a call without a device also covers the next call.
    """
    online = set(connected)
    able = [
        node
        for node in nodes
        if node.id in online
        and node.revoked_ms is None
        and any(one.name == capability and not one.withheld for one in node.capabilities)
    ]
    if not able:
        raise NoCapableDevice(f"no connected device offers {capability[:64]!r}", capability=capability[:64])
    return min(able, key=lambda node: node.id)


def require_capability(node: NodeRecord, capability: str) -> DeviceCapabilityView:
    if capability in node.withheld:
        raise CapabilityWithheld(f"{capability} of {node.name} is withheld", device=node.id, capability=capability)
    for one in node.capabilities:
        if one.name == capability:
            return one
    raise CapabilityMissing(f"{node.name} does not offer {capability[:64]!r}", device=node.id)


def require_input(capability: DeviceCapabilityView, value: Any) -> None:
    """Check the input here, before a person or the device is involved. The device checks it again."""
    if not capability.input_schema_json:
        return
    try:
        SchemaCheck(parse_strict(capability.input_schema_json)).require(value)
    except SchemaMismatch as mismatch:
        raise InputMismatch(
            f"the input does not fit {capability.name}: {mismatch.message}", where=mismatch.pointer
        ) from mismatch
