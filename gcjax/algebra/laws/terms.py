"""Terms of the algebra as data: a law is two of them, and both its text and its test come from these.

Operators as on commands: `c >> d`, `c & d`, `c | d`; on sets and relations `&`, `|` and `~` are those of sets. `@` is
the synchronisation of the law's instance. `==` and `>=` make a claim.
"""

import dataclasses
from typing import Literal, NamedTuple

COMMAND, STEP, SET, RELATION = "command", "step", "set", "relation"

_SYMBOLS = {
    "choice": " or ",
    "meet": " meet ",
    "sequence": ";",
    "parallel": " ∥ ",
    "weak_conjunction": " & ",
    "csp_parallel": " csp ",
    "ccs_parallel": " ccs ",
    "union": " or ",
    "intersection": " and ",
    "composition": "·",
    "restriction": "◁",
}
_CONSTANT_TEXTS = {"any_step": "Atomic", "any_environment_step": "eps(all)", "any_program_step": "pi(all)"}
_CONSTANT_TEXTS |= {"internal": "pi{i}", "event": "pi{e}", "coevent": "pi{e'}"}
_CONSTANT_TEXTS |= {"everything": "all", "nothing": "none", "all_states": "all", "no_states": "none"}
_POSTFIX_SYMBOLS = {"star": "*", "omega": "^w", "infinite": "^inf", "reflexive_transitive": "*"}
_FUNCTION_NAMES = {"program_step": "pi", "environment_step": "eps", "test": "tau", "specification": "spec"}
_FUNCTION_NAMES |= {"guarantee": "guar", "rely": "rely"}
_ANY_SYNCHRONISATION, _ITS_IDENTITY_STEP = "synchronise", "identity_step"
_TEMPLATES = {"assertion": "{{{}}}", "happens": "<{}>", "by_start": "or over s: tau({{s}});chaos;tau({}(s))"}


@dataclasses.dataclass(frozen=True, eq=False)
class Term:
    """An operator and the terms that it is applied to, or a variable if `arguments` is None.

    Attributes:
      name: of the operator or variable.
      sort: what it is: a command, a step, a set of states or a relation.
      arguments: the terms that the operator is applied to; None for a variable.
    """

    name: str
    sort: str = COMMAND
    arguments: "tuple[Term, ...] | None" = ()

    def __rshift__(self, other: "Term") -> "Term":
        """In sequence."""
        return Term("sequence", COMMAND, (self, other))

    def __or__(self, other: "Term") -> "Term":
        """A choice of commands, a union of sets."""
        return self._combined("choice", "union", other)

    def __and__(self, other: "Term") -> "Term":
        """The weak conjunction of commands, the intersection of sets."""
        return self._combined("weak_conjunction", "intersection", other)

    def __matmul__(self, other: "Term") -> "Term":
        """Synchronised, by the instance of the law."""
        return Term(_ANY_SYNCHRONISATION, COMMAND, (self, other))

    def __invert__(self) -> "Term":
        """The complement of a set or relation."""
        return Term("complement", self.sort, (self,))

    def __eq__(self, other: object) -> "Claim":  # type: ignore[override]  # a claim, not an answer
        """The claim that both are the same."""
        assert isinstance(other, Term)
        return Claim(self, "=", other)

    def __ge__(self, other: "Term") -> "Claim":
        """The claim that the other refines this."""
        return Claim(self, ">=", other)

    __hash__ = object.__hash__

    def __str__(self) -> str:
        """As people write it."""
        return _text(self)

    def _combined(self, command_operator: str, set_operator: str, other: "Term") -> "Term":
        """This and the other under the operator for commands, or for sets and relations if this is one."""
        if self.sort in (SET, RELATION):
            return Term(set_operator, self.sort, (self, other))
        return Term(command_operator, COMMAND, (self, other))


class Claim(NamedTuple):
    """What a law says of two terms: the same, or the right one refines the left one."""

    left: Term
    relation: Literal["=", ">="]
    right: Term

    def __str__(self) -> str:
        """As people write it."""
        return f"{self.left} {self.relation} {self.right}"

    def instance(self, operator: str) -> "Claim":
        """The claim with this operator in the place of `@`, for example "parallel"."""
        return Claim(_with_operator(self.left, operator), self.relation, _with_operator(self.right, operator))


def variables(sort: str, names: str) -> list[Term]:
    """Variables of one sort, named by words."""
    return [Term(name, sort, arguments=None) for name in names.split()]


def apply(name: str, *arguments: Term, sort: str = COMMAND) -> Term:
    """The operator of this name."""
    return Term(name, sort, arguments)


def _with_operator(term: Term, operator: str) -> Term:
    """The term with this operator in the place of `synchronise`, which is written `@`, in all its parts.

    So is the step that changes nothing under the operator in the place of `identity_step`.
    """
    if term.arguments is None:  # a variable
        return term
    name = operator if term.name == _ANY_SYNCHRONISATION else term.name
    # If both must take the same step, that is any step; otherwise it is one of the environment.
    if term.name == _ITS_IDENTITY_STEP:
        name = "any_step" if operator == "weak_conjunction" else "any_environment_step"
    return Term(name, term.sort, tuple(_with_operator(argument, operator) for argument in term.arguments))


def _text(term: Term) -> str:
    """The term as people write it, by the notation of its operator.

    A constant or variable; a symbol between two arguments; a postfix; a template around one argument; a function name.
    """
    if not term.arguments:
        return _CONSTANT_TEXTS.get(term.name, term.name)
    if term.name in _SYMBOLS:
        left, right = term.arguments
        left_text = _argument_text(left, outer=term, groups_with=term.name)
        return left_text + _SYMBOLS[term.name] + _argument_text(right, outer=term)
    (argument,) = term.arguments
    if term.name in _POSTFIX_SYMBOLS:
        return _argument_text(argument) + _POSTFIX_SYMBOLS[term.name]
    if term.name == "complement":
        return "not " + _argument_text(argument)
    if term.name in _TEMPLATES:
        return _TEMPLATES[term.name].format(argument)
    return f"{_FUNCTION_NAMES.get(term.name, term.name)}({argument})"


def _argument_text(term: Term, outer: Term | None = None, groups_with: str = "") -> str:
    """The text of a term as an argument of another one, `outer`, in parentheses where they are needed.

    A sequence binds most and needs none under another binary operator; nor does a left argument with the outer one's
    own operator, `groups_with`: all of them group to the left.
    """
    is_binary = term.name in _SYMBOLS and term.arguments
    binds_more_than_outer = outer is not None and outer.name != "sequence" and term.name == "sequence"
    needs_parentheses = is_binary and not binds_more_than_outer and term.name != groups_with
    return f"({term})" if needs_parentheses else str(term)
