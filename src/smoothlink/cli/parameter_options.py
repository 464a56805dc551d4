"""The parameters of a fit as options of `train`, from the table in smoothlink.parameters."""

from __future__ import annotations

import inspect
import re
from typing import Annotated, Any

import typer

from smoothlink.cli.shared_options import PlainCommand
from smoothlink.parameters import (
    FORMER,
    PARAMETERS,
    Parameter,
    every_parameter,
    flat_table,
    parse_setting,
    unknown_parameter,
)

WIDEST = 17  # characters of a metavar
HALF = "The option --half is now --dtype float16, the default of large models."


# What `smoothlink train --help` shows beside the parameters that the table calls common.
OFTEN_USED = (
    *("data", "output", "format", "text", "labels", "label_separator", "params", "valid", "cluster", "set_"),
    *("force", "quiet", "as_json", "help_all", "help"),
)


class TrainCommand(PlainCommand):
    """A command whose --help shows the options that people use, in a sentence each, and --help-all the rest.

    It also says what became of an option of 0.1.
    """

    def get_help(self, ctx: Any) -> str:
        common = {*OFTEN_USED, *(p.name for p in PARAMETERS if p.common)}
        if not ctx.meta.get("every option"):
            for option in self.params:
                option.hidden = option.name not in common  # type: ignore[attr-defined]
                option.help = first_sentence(getattr(option, "help", None) or "")  # type: ignore[attr-defined]
        return super().get_help(ctx)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except Exception as error:
            name = str(getattr(error, "option_name", "")).lstrip("-").replace("-", "_").removeprefix("no_")
            if name == "half":
                error.message, error.possibilities = HALF, None  # type: ignore[attr-defined]
            elif name in FORMER:
                error.message, error.possibilities = unknown_parameter(name), None  # type: ignore[attr-defined]
            raise


def option_of(p: Parameter) -> str:
    return "--" + p.name.replace("_", "-")


def metavar(p: Parameter) -> str:
    """Returns the possible values, or a word for them where they would crowd the column."""
    kinds = (["INT"] if p.values.whole is not None else []) + (["FLOAT"] if p.values.number else [])
    joined = "|".join([*p.values.words, *(["none"] if p.values.none and "none" not in p.values.words else []), *kinds])
    joined += "|..." if p.values.objects and p.values.words else ""
    return (
        joined
        if joined not in ("", "none") and len(joined) <= WIDEST
        else "VALUE"
        if kinds or p.values.objects
        else "NAME"
    )


def described(p: Parameter) -> str:
    """Returns the help in the markup of rich, with the words where the metavar leaves them out, and the default."""
    listed = "" if "|" in metavar(p) or len(p.values.words) < 2 else f" Possible: {', '.join(p.values.words)}."
    text = (p.help + listed).replace("[", r"\[")
    return text if p.values.flag else rf"{text} [dim]\[default: {str(p.default).lower()}][/dim]"


def first_sentence(text: str) -> str:
    """Returns the first sentence of a help text, with the possible words and the default that stand at its end."""
    end = re.search(r"( Possible: [^.]*\.)?( \[dim\].*)?$", text)
    sentence = re.match(r"(?:[^.]|\.(?! ))*\.", text)
    return text if sentence is None or end is None or end.start() <= sentence.end() else sentence[0] + end[0]


def typed() -> list[Parameter]:
    return [p for p in PARAMETERS if p.typed]


def chosen(*, set_: list[str] | None = None, **given: Any) -> dict[str, Any]:
    """Returns the settings given on the command line, by name; the others keep their defaults."""
    found: dict[str, Any] = {}
    for p in typed():
        value = given.get(p.name)
        if value is None:
            continue
        try:
            found[p.name] = value if p.values.flag and isinstance(value, bool) else p.values.parse(value)
        except ValueError:
            raise typer.BadParameter(f"{value!r} is none of {p.values.typed}.", param_hint=option_of(p)) from None
    for text in set_ or []:
        try:
            name, value = parse_setting(text)
        except ValueError as error:
            raise typer.BadParameter(str(error), param_hint="--set") from None
        found[name] = value
    return found


def _option(p: Parameter) -> inspect.Parameter:
    flag = p.values.flag and p.values.whole is None
    negative = f"/--no-{option_of(p)[2:]}" if flag and p.default is not False else ""
    info = typer.Option(
        option_of(p) + negative,
        metavar=None if flag else metavar(p),
        help=described(p),
        show_default=False,
        rich_help_panel=p.group,
        autocompletion=None if flag else lambda incomplete: [w for w in p.values.words if w.startswith(incomplete)],
    )
    kind: Any = Annotated[bool | None if flag else str | None, info]
    return inspect.Parameter(p.name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=kind)


def show_all(context: typer.Context, wanted: bool) -> None:
    """Prints the help with the options that --help leaves out, and ends."""
    if wanted:
        context.meta["every option"] = True
        typer.echo(context.get_help(), nl=False)
        raise typer.Exit


HelpAll = Annotated[
    bool,
    typer.Option("--help-all", help="Show every option, and exit.", callback=show_all, is_eager=True),
]


def set_option() -> inspect.Parameter:
    names = ", ".join(name for name in flat_table() if "." in name and every_parameter(name)[0].typed)
    info = typer.Option(
        "--set",
        metavar="NAME=VALUE",
        help=f"Set any parameter, such as kernel.bandwidth=2. The parameters of choices are {names}.",
        show_default=False,
        rich_help_panel="Model",
    )
    kind: Any = Annotated[list[str] | None, info]
    return inspect.Parameter("set_", inspect.Parameter.KEYWORD_ONLY, default=None, annotation=kind)


chosen.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
    [*(_option(p) for p in typed()), set_option()]
)
