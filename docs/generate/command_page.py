"""docs/commands.md from the program itself: every command with its arguments and options."""

from __future__ import annotations

import inspect
import re
import typing
from collections import Counter
from typing import Any

import typer

from smoothlink.cli.app import app
from smoothlink.cli.shared_options import WORDS

HEAD = """# Commands

`smoothlink COMMAND --help` shows the same on the screen.

Messages go to standard error, results to standard output. The exit code is 0, or 1 where something is wrong with the
data or the model, 2 where the command was typed wrongly, 130 after Ctrl-C. `smoothlink --debug COMMAND` shows the
traceback of an error, `smoothlink --version` the version.

On a terminal a bar shows what `train` and `predict` have done and about how long they still take. Elsewhere, as in a
log, standard error gets a line for each step when it ends, and every half minute one with what is done; `--quiet` shows
neither.

After `smoothlink --install-completion`, in a new terminal, the Tab key completes commands, options and their values
(bash, zsh, fish, PowerShell); `--show-completion` only prints what would be installed.
"""
WRITTEN = "Written by `python docs/generate` from the program."
NOT_RUN = "<!-- not run: the examples of the help texts; their options are checked -->"
BAR = "&#124;"  # within a table a bar ends the cell
OWN = ("Arguments", "Options")


def command_page() -> str:
    """The whole text; a function of the program alone."""
    group: Any = typer.main.get_command(app)
    panels = {name: panels_of(command) for name, command in group.commands.items()}
    times = Counter((panel, tuple(rows)) for own in panels.values() for panel, rows in own.items())
    shared = {panel: list(rows) for (panel, rows), count in times.items() if count > 1 and panel not in OWN}
    listed = [f"| [`{name}`](#{name}) | {first_line(command)} |" for name, command in group.commands.items()]
    lines = [HEAD, "| command | what it does |\n|---|---|", *listed, ""]
    for name, command in group.commands.items():
        lines += section(name, command, panels[name], shared)
    for panel, rows in shared.items():
        lines += [f"## {panel}", "", "Options of several commands.", "", *table(rows)]
    return "\n".join([*lines, WRITTEN, ""])


def first_line(command: Any) -> str:
    return str(command.help).strip().splitlines()[0]


def panels_of(command: Any) -> dict[str, list[str]]:
    """The panels of the help, each with the rows of its table."""
    hints = inspect.signature(command.callback, eval_str=True).parameters
    panels: dict[str, list[str]] = {}
    for parameter in command.params:
        of_option = bool(parameter.opts[0].startswith("-"))
        panel = parameter.rich_help_panel or OWN[of_option]
        panels.setdefault(panel, []).append(row(parameter, hints[parameter.name], of_option))
    return panels


def section(name: str, command: Any, panels: dict[str, list[str]], shared: dict[str, list[str]]) -> list[str]:
    """One command: what it does, examples, and a table for each panel that is its own."""
    paragraphs = [" ".join(part.split()) for part in str(command.help).split("\n\n")]
    examples = [part.removeprefix("Example: ") for part in paragraphs if part.startswith("Example: ")]
    prose = [part for part in paragraphs if not part.startswith("Example: ")]
    lines = [f"## {name}", "", "\n\n".join(prose), ""]
    if examples:
        lines += [NOT_RUN, "", "```sh", *examples, "```", ""]
    for panel, rows in panels.items():
        if shared.get(panel) != rows:
            lines += [f"**{panel}**", "", *table(rows)]
    others = [
        f"[{panel}](#{panel.lower().replace(' ', '-')})" for panel in panels if shared.get(panel) == panels[panel]
    ]
    return lines + ([f"And the options of: {', '.join(others)}.", ""] if others else [])


def table(rows: list[str]) -> list[str]:
    return ["| | |", "|---|---|", *rows, ""]


def row(parameter: Any, hint: inspect.Parameter, of_option: bool) -> str:
    """| what is typed, and what it takes | what it means |"""
    typed = ", ".join(f"`{name}`" for name in (*parameter.opts, *parameter.secondary_opts))
    value = value_of(parameter, hint)
    name = f"{typed} {value}".rstrip() if of_option else f"`{parameter.metavar}`"
    return f"| {name} | {' '.join(meaning(parameter).replace('|', BAR).split())} |"


def value_of(parameter: Any, hint: inspect.Parameter) -> str:
    """The word for a value, with its bounds, or the words to choose from; empty for a switch."""
    kind, info = annotation(hint)
    if kind is bool:
        return ""
    word = " or ".join(f"*{part}*" for part in (parameter.metavar or WORDS.get(kind, "TEXT")).split("|"))
    low, high = getattr(info, "min", None), getattr(info, "max", None)
    bounds = f"{low} to {high}" if None not in (low, high) else f"{low} or more" if low is not None else ""
    return f"{word} ({bounds})" if bounds else word


def annotation(hint: inspect.Parameter) -> tuple[Any, Any]:
    """The type within Annotated[type | None, info], and info."""
    kind, *extra = typing.get_args(hint.annotation) or (hint.annotation,)
    inner = [part for part in typing.get_args(kind) if part is not type(None)]
    return (inner[0] if inner else kind), (extra[0] if extra else None)


def meaning(parameter: Any) -> str:
    """The help without rich's markup, with the default."""
    text = re.sub(r"(?<!\\)\[/?dim\]", "", str(parameter.help)).replace(r"\[", "[")
    default = parameter.default
    plain = isinstance(default, str | int | float) and not isinstance(default, bool) and bool(parameter.show_default)
    text += f" [default: {default}]" if plain and default != "" else ""
    return text + (" *Required.*" if parameter.required else "")
