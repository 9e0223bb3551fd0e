"""Assignments to order, and every order of a small one."""

import itertools
import math

import numpy as np

from gcjax.codes import assignments
from gcjax.codes.assignments.conversions import from_pairs


def small(seed, *, holders=1, orders=20_000):
    """A random assignment of up to 7 chunks to up to 6 workers with so many orders at most."""
    rng = np.random.default_rng(seed)
    while True:
        matrix = rng.random((rng.integers(2, 8), rng.integers(2, 7))) < rng.uniform(0.3, 0.8)
        for row in matrix:
            row[rng.choice(row.size, holders, replace=False)] = True
        if math.prod(math.factorial(int(load)) for load in matrix.sum(axis=0)) <= orders:
            return assignments.from_matrix(matrix.astype(int))


def positions(assignment):
    """For each chunk an array [orders, holders] of its positions, from 1, in all orders; and who its holders are."""
    choices = [np.array(list(itertools.permutations(range(1, load + 1)))) for load in assignment.loads]
    index = np.indices([len(choice) for choice in choices]).reshape(len(choices), -1)
    found = [[] for _ in range(assignment.num_chunks)]
    holding = [[] for _ in range(assignment.num_chunks)]
    for worker, load in enumerate(assignment.loads):
        for entry in range(load):
            chunk = assignment.chunks[worker, entry]
            found[chunk].append(choices[worker][index[worker], entry])
            holding[chunk].append(worker)
    return [np.stack(columns, axis=1) for columns in found], [np.array(workers) for workers in holding]


def all_q_max(assignment, num_blocks):
    """int[orders]: q_max of all orders, by its definition: most chunks processed while one waits, plus one."""
    work, worst = int(assignment.loads.sum()), 0
    for place, workers in zip(*positions(assignment), strict=True):
        undone = assignment.loads[workers] - place + 1  # at least, if that holder has not finished the chunk
        unfinished = len(workers) - num_blocks + 1
        done = [
            work - undone[:, list(some)].sum(axis=1) for some in itertools.combinations(range(len(workers)), unfinished)
        ]
        worst = np.maximum(worst, np.max(done, axis=0))
    return worst + 1


def all_completion_times(assignment, seconds, num_blocks):
    """float[orders, S]: the completion times of all orders for float[S, W]."""
    places, holding = positions(assignment)
    worst = np.zeros((len(places[0]), len(seconds)))
    for place, workers in zip(places, holding, strict=True):
        finish = place[:, :, None] * seconds[:, workers].T[None]
        worst = np.maximum(worst, np.sort(finish, axis=1)[:, num_blocks - 1])
    return worst


def irregular(num_workers, num_chunks, *, holders, seed=0):
    """Loads of about 4 to 11, at least so many holders of each chunk; nothing dense."""
    rng = np.random.default_rng(seed)
    loads = rng.integers(3, 9, num_workers)
    workers = [np.repeat(np.arange(num_workers), loads)]
    chunks = [rng.integers(0, num_chunks, workers[0].size)]
    for _ in range(holders):
        workers.append(rng.permutation(np.resize(np.arange(num_workers), num_chunks)))
        chunks.append(np.arange(num_chunks))
    pairs = np.unique(np.stack([np.concatenate(workers), np.concatenate(chunks)], axis=1), axis=0)
    return from_pairs(pairs[:, 0], pairs[:, 1], num_workers=num_workers, num_chunks=num_chunks)
