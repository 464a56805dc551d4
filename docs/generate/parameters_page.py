"""docs/parameters.md and the table of docs/migrating.md, from the tables in smoothlink.parameters."""

from __future__ import annotations

import re
from itertools import groupby

from smoothlink import parameters
from smoothlink.parameters import CHOICES, FORMER, Choice, Limit, Parameter, example_of

HEAD = """# Parameters

The parameters of `SmoothLinkClassifier`, which are options of `smoothlink train` too. None of them has to be given.

A [choice](#choices) has parameters of its own. In Python it is an object, `kernel=Gaussian(bandwidth=2.0)`, or where
its defaults will do a word, `kernel="gaussian"`; `set_params(kernel__bandwidth=2.0)` and `GridSearchCV` reach into the
object. On the command line, `--set kernel.bandwidth=2`.

A value that is not possible is an error, and so is a parameter that the chosen learner does not use
([what goes together](#what-goes-together)).
"""
WRITTEN = (
    "Written by `python docs/generate` from the table in `smoothlink.parameters`, from which the checks of "
    "`SmoothLinkClassifier` and the options of `smoothlink train` come too."
)
CHOICES_HEAD = """## Choices

`from smoothlink import Gaussian, Logistic, Joint` and so on.
"""
LIMITS_HEAD = """## What goes together

Each of these leaves some parameters without use; other values of them are refused.
"""
BEGIN, END = "<!-- former parameters: written by python docs/generate -->", "<!-- end of former parameters -->"


def parameters_page() -> str:
    """Returns the whole text: a section for each group of parameters, the choices, and what goes together."""
    lines = [HEAD]
    for group, members in groupby(sorted(parameters.PARAMETERS, key=order), key=lambda p: p.group):
        lines += [f"## {group}", ""]
        for p in members:
            lines += described(p, p.name)
    lines.append(CHOICES_HEAD)
    for choice in CHOICES:
        lines += chosen(choice)
    lines.append(LIMITS_HEAD)
    for limit in (*parameters.LIMITS, parameters.CLUSTER):
        lines += limited(limit)
    return "\n".join([*lines, WRITTEN, ""])


def order(p: Parameter) -> int:
    """Returns where the group of a parameter is first in the table."""
    groups = [known.group for known in parameters.PARAMETERS]
    return groups.index(p.group)


def described(p: Parameter, name: str) -> list[str]:
    return [f"### {name}", "", p.help, "", f"{possible(p)}.", ""]


def possible(p: Parameter) -> str:
    """Returns what a parameter may be, and its default."""
    values = str(p.values)
    return f"{values[0].upper()}{values[1:]}; default: `{p.default!r}`"


def chosen(choice: Choice) -> list[str]:
    """Returns the section of a choice: when it is meant, and its parameters."""
    word = f', or `{choice.parameter}="{choice.word}"`' if choice.word else ""
    call = f"{choice.name}({', '.join(f'{p.name}={p.default!r}' for p in choice.parameters)})"
    lines = [f"### {choice.name}", "", f"`{choice.parameter}={call}`{word}", "", choice.help, ""]
    if choice.parameters:
        rows = [f"| `{p.name}` | {p.help} | {possible(p)} |" for p in choice.parameters]
        lines += ["| | | |", "|---|---|---|", *rows, ""]
    return lines


def limited(limit: Limit) -> list[str]:
    who = limit.who if " " in limit.who else f"`{limit.who}`"
    rows = [f"| `{name}` | {values} |" for name, values in limit.values.items()]
    return [f"With {who}:", "", "| | possible |", "|---|---|", *rows, ""]


def with_former(page: str) -> str:
    """Returns the text with the table of former parameters between the two marks written anew."""
    rows = [f"| `{name}` | {now(became)} |" for name, became in FORMER.items()]
    table = "\n".join([BEGIN, "", "| 0.1 | 0.2 |", "|---|---|", *rows, "", END])
    return re.sub(f"{re.escape(BEGIN)}.*?{re.escape(END)}", lambda _: table, page, flags=re.DOTALL)


def now(became: str) -> str:
    """Returns how a former parameter is given now, in Python and on the command line."""
    return became if " " in became else f"`{example_of(became)}`, or `--set {became}=...`"
