"""What `gcjax check --json` prints."""

from collections.abc import Sequence
from typing import Any

from gcjax.cli.check_schedules import ScheduleCheck
from gcjax.specifications import Finding, Result


def of_specification(result: Result) -> dict[str, Any]:
    """Whether a specification holds, what was found of each part, and the counterexample of each part that does not."""
    findings = (*result.components, result.composition, result.product, result.progress)
    return {
        "holds": bool(result),
        "specification": result.specification.name,
        "claim": result.specification.claim,
        "findings": [{**_finding(finding), "result": result.said(finding)} for finding in findings],
    }


def of_schedules(checks: Sequence[ScheduleCheck]) -> dict[str, Any]:
    """Whether each schedule keeps to what its protocol promises; null if that promises nothing that can be checked."""
    return {
        "holds": all(check.conformance is None or check.conformance for check in checks),
        "schedules": [_schedule(check) for check in checks],
    }


def _finding(finding: Finding) -> dict[str, Any]:
    """A finding, without its counterexample if it holds."""
    steps = [
        {"who": step.component, "does": step.action, "state": step.after._asdict()} for step in finding.counterexample
    ]
    counterexample = None if finding.holds else {"reason": finding.reason, "steps": steps}
    return {
        "part": finding.part,
        "holds": finding.holds,
        "states": finding.states,
        "transitions": finding.transitions,
        "counterexample": counterexample,
    }


def _schedule(check: ScheduleCheck) -> dict[str, Any]:
    """The verdict on one schedule: its steps, and the first that breaks the promise, if one does; null: no promise."""
    verdict: dict[str, Any] = {"scheme": check.scheme, "setting": check.setting}
    verdict |= {"holds": None, "claim": None, "steps": None}
    conformance = check.conformance
    if conformance is not None:
        verdict |= {"holds": bool(conformance), "claim": conformance.specification.claim, "steps": conformance.events}
    if conformance is not None and not conformance:
        broken = {name: getattr(conformance, name) for name in ("violated", "time", "actor", "action", "unit")}
        verdict["broken"] = broken
    return verdict
