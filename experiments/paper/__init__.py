"""Regenerates every number, table and figure of the manuscript in `paper/`.

make paper             # the configs as they are; goes on with what is not done
make paper QUICK=1     # smaller sizes, for trying it out; marked as such
"""
