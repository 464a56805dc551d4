"""The parameters of SmoothLinkClassifier as options of `train`: names, defaults and help from the class itself.

The class is read, not imported: scikit-learn would make `--help` wait for a second.
"""

from __future__ import annotations

import ast
import functools
import inspect
import pkgutil
import re
from typing import Annotated, Any, NamedTuple

import typer

CLASS = "SmoothLinkClassifier"
WIDEST = 16  # characters of a metavar
KINDS = {"int": int, "float": float, "str": str}
OTHER = "The run"
PANELS = {
    "The embedding": """rank embedding ridge power oversample half_step penalize_constant normalize_embedding
        input_kernel input_bandwidth input_features input_map class_weight solver""",
    "The link": "kernel bandwidth n_features quasi_random final_ridge loss label_smoothing",
    "The descent, for the logistic and softmax losses": """passes learning_rate momentum decay batch_rows negatives
        direct""",
}


class Parameter(NamedTuple):
    """One parameter, as its class documents it."""

    name: str
    default: Any
    type: str  # 'int, float in (0, 1] or "adaptive"'
    help: str

    @property
    def option(self) -> str:
        return "--" + self.name.replace("_", "-")

    @property
    def words(self) -> list[str]:
        """The values that are words, such as "auto"."""
        return re.findall(r'"([^"]+)"', self.type)

    @property
    def kinds(self) -> list[str]:
        """Keys of KINDS."""
        return [kind for kind in KINDS if re.search(rf"\b{kind}\b", re.sub(r'"[^"]+"', "", self.type))]

    @property
    def optional(self) -> bool:
        return "None" in self.type

    @property
    def flag(self) -> bool:
        return isinstance(self.default, bool)

    def value(self, text: str) -> Any:
        """What the text stands for: one of the words, none, a number, any text."""
        if text in self.words:
            return text
        if self.optional and text.lower() == "none":
            return None
        for kind in self.kinds:
            try:
                return KINDS[kind](text)
            except ValueError:
                continue
        raise typer.BadParameter(f"{text!r} is none of {', '.join(self.choices)}.", param_hint=self.option)

    @property
    def choices(self) -> list[str]:
        """What can be typed."""
        none = ["none"] if self.optional and "none" not in self.words else []
        return [*self.words, *none, *(kind.upper() for kind in self.kinds)]

    @property
    def metavar(self) -> str:
        """The choices, or a word for them where they would crowd the column."""
        joined = "|".join(self.choices)
        return joined if len(joined) <= WIDEST else "VALUE" if self.kinds else "NAME"

    @property
    def described(self) -> str:
        """The help in the markup of rich, with the choices where the metavar leaves them out, and the default."""
        *most, last = self.choices or [""]
        listed = "" if self.flag or "|" in self.metavar or not most else f"{', '.join(most)} or {last}. "
        text = (listed + self.help).replace("[", r"\[")
        return text if self.default is False else rf"{text} [dim]\[default: {str(self.default).lower()}][/dim]"


@functools.cache
def parameters() -> tuple[Parameter, ...]:
    """Those that text can give, in the order of the class. (`first_stage` is an object.)"""
    source = pkgutil.get_data("smoothlink", "estimator.py")
    assert source is not None
    found = next(node for node in ast.parse(source).body if isinstance(node, ast.ClassDef) and node.name == CLASS)
    defaults = _defaults(found)
    documented = _documented(ast.get_docstring(found) or "")
    every = (Parameter(name, default, *documented[name]) for name, default in defaults.items())
    return tuple(p for p in every if p.flag or p.words or p.kinds)


def _defaults(found: ast.ClassDef) -> dict[str, Any]:
    """name -> default, from the signature of __init__."""
    init = next(node for node in found.body if isinstance(node, ast.FunctionDef) and node.name == "__init__").args
    given = init.args[len(init.args) - len(init.defaults) :]
    pairs = [*zip(given, init.defaults, strict=True), *zip(init.kwonlyargs, init.kw_defaults, strict=True)]
    return {argument.arg: ast.literal_eval(default) for argument, default in pairs if default is not None}


def _documented(docstring: str) -> dict[str, tuple[str, str]]:
    """name -> (type, help), from the section Parameters."""
    section = re.search(r"^Parameters\n-+\n(.*?)(?=^\w+\n-+\n|\Z)", docstring, re.DOTALL | re.MULTILINE)
    entries = re.findall(r"^(\w+) : (.*)\n((?:[ \t]+.*\n?|\n)*)", section[1] if section else "", re.MULTILINE)
    return {name: (re.sub(r", default=.*", "", kind), " ".join(text.split())) for name, kind, text in entries}


def chosen(**given: Any) -> dict[str, Any]:
    """The parameters given on the command line; the others keep the defaults of the class."""
    named = {p.name: p for p in parameters()}
    return {
        name: value if named[name].flag else named[name].value(value)
        for name, value in given.items()
        if value is not None
    }


def _option(p: Parameter) -> inspect.Parameter:
    panel = next((title for title, names in PANELS.items() if p.name in names.split()), OTHER)
    negative = f"/--no-{p.option[2:]}" if p.default is True else ""
    info = typer.Option(
        p.option + negative,
        metavar=None if p.flag else p.metavar,
        help=p.described,
        show_default=False,
        rich_help_panel=panel,
    )
    kind: Any = Annotated[bool | None if p.flag else str | None, info]
    return inspect.Parameter(p.name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=kind)


def _order(p: Parameter) -> int:
    """Panels appear in the order of their first options."""
    return next((i for i, names in enumerate(PANELS.values()) if p.name in names.split()), len(PANELS))


chosen.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
    [_option(p) for p in sorted(parameters(), key=_order)]
)
