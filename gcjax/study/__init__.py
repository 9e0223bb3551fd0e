"""Schemes against one another: every scheme under every condition with every seed, on the same random draws."""

from gcjax.registry import Entry
from gcjax.study.base import Study
from gcjax.study.compare import compare
from gcjax.study.inputs import Condition, Inputs, draw
from gcjax.study.results import Plan, StudyResults, final_rows, seed_values
from gcjax.study.runner import plan, run
from gcjax.study.training import SchemeRuns
from gcjax.study.tuning import Trial, Tuning, best_trial, rate_grid, select_runs, trial_plan

__all__ = [
    "EXPERIMENTS",
    "TABLE",
    "Condition",
    "Inputs",
    "Plan",
    "SchemeRuns",
    "Study",
    "StudyResults",
    "Trial",
    "Tuning",
    "best_trial",
    "compare",
    "draw",
    "final_rows",
    "plan",
    "rate_grid",
    "run",
    "seed_values",
    "select_runs",
    "trial_plan",
]

TABLE = {"study": Entry(Study), "tuning": Entry(Tuning)}
EXPERIMENTS = {"compare": Entry(compare, also_needs=(("study.target", 0.9),))}
