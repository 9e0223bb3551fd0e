"""What `gcjax check --json` prints."""

from collections.abc import Sequence
from typing import Any

from gcjax.cli.check_schedules import ScheduleCheck
from gcjax.specifications import Finding, Result


def specification_json(result: Result) -> dict[str, Any]:
    """Whether a specification holds, what was found of each part, and the counterexample of each part that does not.

    The parts are each component alone, their composition, all together, and progress; `result` says it in words.
    """
    findings = (*result.components, result.composition, result.product, result.progress)
    return {
        "holds": bool(result),
        "specification": result.specification.name,
        "claim": result.specification.claim,
        "findings": [{**_finding_json(finding), "result": result.finding_in_words(finding)} for finding in findings],
    }


def schedules_json(checks: Sequence[ScheduleCheck]) -> dict[str, Any]:
    """Whether each schedule keeps to what its protocol promises; null if that promises nothing that can be checked."""
    return {
        "holds": all(check.conformance is None or check.conformance for check in checks),
        "schedules": [_verdict_json(check) for check in checks],
    }


def _finding_json(finding: Finding) -> dict[str, Any]:
    """A finding: which part of the specification, whether it holds, how many states; if not, the counterexample."""
    steps = [
        {"who": step.component, "does": step.action, "state": step.after._asdict()} for step in finding.counterexample
    ]
    counterexample = None if finding.holds else {"reason": finding.reason, "steps": steps}
    return {
        "part": finding.part,
        "holds": finding.holds,
        "states": finding.states,
        "transitions": finding.transitions,
        "complete": finding.is_complete,
        "counterexample": counterexample,
    }


def _verdict_json(check: ScheduleCheck) -> dict[str, Any]:
    """The verdict on one schedule: its steps, and the first that breaks the promise, if one does; null: no promise."""
    scheme_and_setting = {"scheme": check.scheme, "setting": check.condition}
    conformance = check.conformance
    if conformance is None:
        return {**scheme_and_setting, "holds": None, "claim": None, "steps": None}
    claim, holds = conformance.specification.claim, bool(conformance)
    verdict = {**scheme_and_setting, "holds": holds, "claim": claim, "steps": conformance.num_events}
    if not holds:
        violation_fields = ("violated", "time", "actor", "action", "unit")
        verdict["broken"] = {name: getattr(conformance, name) for name in violation_fields}
    return verdict
