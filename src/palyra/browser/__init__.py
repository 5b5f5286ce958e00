"""Headless browser sessions: Chromium behind fences, its pages, its profiles and downloads."""
