"""Gradient coding with partial stragglers, reproduced (Ramamoorthy, Meng, Girimaji, NeurIPS 2024, arXiv 2405.19509).

    gcjax run configs/partial_stragglers/approximate.gin    # error against deadline
    gcjax run configs/partial_stragglers/exact.gin          # time to the exact sum

Other stragglers and other assignments are other configs of the same two experiments.

Letters: S trials, D deadlines, W workers, N chunks, K chunks a worker holds, R holders of a chunk, L blocks.
"""
