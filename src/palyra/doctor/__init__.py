"""Finds out what this machine can enforce, by trying."""
