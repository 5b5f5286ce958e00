"""The settings of paired devices."""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from palyra.config.setting_types import describe
from palyra.devicelink import limits as nodes
from palyra.devicelink import limits as pairing
from palyra.egress.settings import HostName


class NodeSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    enabled: Annotated[bool, describe("Whether devices may be paired and used at all.")] = True
    host: Annotated[str, Meta(min_length=1), describe("Address the listeners for devices are on.")] = "127.0.0.1"
    port: Annotated[
        int, Meta(ge=0, le=65535), describe("Port of paired devices; 0 takes a free one and keeps to it.")
    ] = 0
    pairing_port: Annotated[
        int, Meta(ge=0, le=65535), describe("Port that pairing goes over; 0 takes a free one and keeps to it.")
    ] = 0
    advertise: Annotated[
        tuple[HostName, ...],
        describe("Names and addresses that devices reach this machine by, the best first; for codes and certificate."),
    ] = ()
    store: Annotated[
        Literal["file", "sql"], describe("Where devices are kept: in `node-runtime.v1.json`, or in the database.")
    ] = "file"
    code_seconds: Annotated[
        int,
        Meta(ge=pairing.MIN_CODE_TTL_SECONDS, le=pairing.MAX_CODE_TTL_SECONDS),
        describe("How long a pairing code works if its maker does not say."),
    ] = pairing.DEFAULT_CODE_TTL_SECONDS
    heartbeat_seconds: Annotated[
        float,
        Meta(ge=nodes.MIN_HEARTBEAT_SECONDS, le=nodes.MAX_HEARTBEAT_SECONDS),
        describe("How often a connected device says that it is there."),
    ] = nodes.DEFAULT_HEARTBEAT_SECONDS
    heartbeat_timeout_seconds: Annotated[
        float,
        Meta(ge=nodes.MIN_HEARTBEAT_SECONDS, le=nodes.MAX_HEARTBEAT_SECONDS),
        describe("Seconds of silence after which a device counts as gone."),
    ] = nodes.DEFAULT_HEARTBEAT_TIMEOUT_SECONDS
    max_result_bytes: Annotated[
        int,
        Meta(ge=nodes.MIN_RESULT_BYTES, le=nodes.MAX_RESULT_BYTES),
        describe("Most bytes a device may return for one request."),
    ] = nodes.DEFAULT_MAX_RESULT_BYTES
