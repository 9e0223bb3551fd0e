"""What schemes are called."""

from gcjax.advice.base import Scheme


def label(scheme: Scheme) -> str:
    """The name of a scheme with its setting."""
    return f"{scheme.name} ({scheme.setting})" if scheme.setting else scheme.name
