"""Instances of every compression of the table, for the tests that hold for all."""

from gcjax import compression as C

PLAIN = {
    "float4": C.float4(block_size=8),
    "int8": C.int8(block_size=8),
    "powersgd": C.powersgd(rank=1),
    "qsgd": C.qsgd(levels=1, bucket_size=16),
    "qsgd of many levels": C.qsgd(levels=8, bucket_size=16),
    "random_k": C.random_k(share=0.25),
    "random_k of its own": C.random_k(share=0.25, shared=False, rescale=False),
    "sign": C.sign(),
    "top_k": C.top_k(share=0.25),
}
CONTRACTIONS = {name: c for name, c in PLAIN.items() if c.is_contraction}
ALL = {**PLAIN, **{f"error feedback, {name}": C.error_feedback(c) for name, c in CONTRACTIONS.items()}}

LEVELS = (1, 8, 5, 0)
BY_WORKER = C.qsgd(levels=LEVELS, bucket_size=16)
