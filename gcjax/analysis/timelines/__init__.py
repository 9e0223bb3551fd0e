"""Timelines of records, simulated or live: what a worker did when, for viewers of traces."""
