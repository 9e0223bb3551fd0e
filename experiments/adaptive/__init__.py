"""Codes that change with the stragglers, against the best code that never changes."""
