"""Secrets that agents can use and never see."""
