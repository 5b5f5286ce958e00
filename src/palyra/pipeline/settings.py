"""The tree of settings: sections, keys, defaults, bounds, and one line on each.

The types are the single source: validation, ``palyra config show`` and the reference page are all read from them.
"""

from typing import Annotated

import msgspec
from msgspec import Meta

from palyra import limits
from palyra.config.setting_types import Count, Millis, Patterns, describe


class ToolsSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    allowed: Annotated[Patterns, describe("Tools that policies may permit at all, as globs.")] = (
        "echo",
        "sleep",
        "fs.*",
        "process.*",
        "http.fetch",
        "skill.*",
        "node.*",
        "browser.*",
    )
    preapproved: Annotated[Patterns, describe("Sensitive tools that run without asking a person, as globs.")] = ()
    timeout_ms: Annotated[Millis, describe("Deadline of a call that names none.")] = limits.DEFAULT_CALL_TIMEOUT_MS
    max_timeout_ms: Annotated[Millis, describe("Longest deadline a call may ask for.")] = limits.MAX_CALL_TIMEOUT_MS
    max_output_bytes: Annotated[
        int,
        Meta(ge=limits.KIB, le=limits.MAX_TOOL_OUTPUT_BYTES),
        describe("Most bytes one call may return."),
    ] = limits.MAX_TOOL_OUTPUT_BYTES
    max_concurrent_calls: Annotated[
        int,
        Meta(ge=1, le=limits.MAX_CONCURRENT_CALLS),
        describe("Calls in progress at once; the next one is refused."),
    ] = limits.MAX_CONCURRENT_CALLS
    max_concurrent_calls_per_principal: Annotated[
        int,
        Meta(ge=1, le=limits.MAX_CONCURRENT_CALLS),
        describe("Calls of one principal in progress at once; never more than three quarters of all."),
    ] = limits.MAX_CONCURRENT_CALLS_PER_PRINCIPAL
    calls_for_operators: Annotated[
        int,
        Meta(ge=0, le=limits.MAX_CONCURRENT_CALLS),
        describe("How many of all calls at once only operators' own may take; never more than a quarter."),
    ] = limits.CALLS_FOR_OPERATORS


class ApprovalsSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    ttl_seconds: Annotated[Count, describe("How long a request for approval waits before it is denied.")] = 900
    max_ttl_seconds: Annotated[Count, describe("Longest life of an approval, whatever its scope.")] = 86_400
    denied_again_seconds: Annotated[
        int,
        Meta(ge=0, le=limits.MAX_DENIED_AGAIN_SECONDS),
        describe("After a person's no, the same request is denied for this long and asks nobody; 0 turns it off."),
    ] = 300


class RetentionSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    results_days: Annotated[
        int,
        Meta(ge=1, le=limits.MAX_RESULTS_DAYS),
        describe("How long the result of a call is kept; its record, digest and attestation stay."),
    ] = limits.DEFAULT_RESULTS_DAYS
    results_bytes: Annotated[
        int,
        Meta(ge=limits.MIB),
        describe("Most bytes of results that are kept; the principal that holds the most loses its oldest first."),
    ] = limits.DEFAULT_RESULTS_BYTES


class BudgetSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    calls: Annotated[Count, describe("Calls in one run.")] = limits.DEFAULT_MAX_CALLS_PER_RUN
    wall_ms: Annotated[Count, describe("Time the calls of one run may take in sum.")] = limits.DEFAULT_RUN_WALL_MS
    egress_bytes: Annotated[Count, describe("Bytes one run may send and receive.")] = limits.DEFAULT_RUN_EGRESS_BYTES
    wasm_fuel: Annotated[Count, describe("WebAssembly fuel one run may burn.")] = limits.DEFAULT_RUN_WASM_FUEL
    runs_per_hour: Annotated[Count, describe("Runs that one principal may open in an hour.")] = (
        limits.DEFAULT_RUNS_PER_HOUR
    )
    browser_actions: Annotated[Count, describe("Browser actions in one run.")] = limits.DEFAULT_RUN_BROWSER_ACTIONS
