"""Append-only record: redacted events, their hash chain, signed checkpoints, verification and export."""
