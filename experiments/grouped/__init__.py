"""Grouped servers and the hybrid of workers' groups, against the claims of their papers.

Basu, Saxena, Panja, Verma (HiPC 2018): groups with parameter servers of their own, under delays of a node. The hybrid:
synchronous in a group of about equally fast workers, asynchronous between the groups.

gcjax run configs/grouped/delays.gin
gcjax run configs/grouped/two_stragglers.gin
gcjax run configs/grouped/merges.gin
gcjax run configs/grouped/hybrid.gin
"""
