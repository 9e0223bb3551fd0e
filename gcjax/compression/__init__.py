"""Compressions of the messages that workers send: what the server gets, and how many bytes that is."""

from gcjax.compression.base import Compression
from gcjax.compression.error_feedback import ErrorFeedback, error_feedback
from gcjax.compression.float4 import float4
from gcjax.compression.int8 import int8
from gcjax.compression.powersgd import Factors, powersgd
from gcjax.compression.qsgd import qsgd
from gcjax.compression.random_k import random_k
from gcjax.compression.sign import sign
from gcjax.compression.top_k import top_k
from gcjax.registry import Entry

TABLE: dict[str, Entry] = {
    "error_feedback": Entry(error_feedback, "Seide et al. 2014"),
    "float4": Entry(float4, "Douillard et al. 2025"),
    "int8": Entry(int8, "Dettmers 2016"),
    "powersgd": Entry(powersgd, "Vogels, Karimireddy, Jaggi 2019"),
    "qsgd": Entry(qsgd, "Alistarh et al. 2017"),
    "random_k": Entry(random_k, "Stich et al. 2018"),
    "sign": Entry(sign, "Karimireddy et al. 2019"),
    "top_k": Entry(top_k, "Stich et al. 2018"),
}

__all__ = [
    "TABLE",
    "Compression",
    "ErrorFeedback",
    "Factors",
    "error_feedback",
    "float4",
    "int8",
    "powersgd",
    "qsgd",
    "random_k",
    "sign",
    "top_k",
]
