"""Trace validation: the events of a record, held against a specification, and what must hold of every record."""
