"""The commands and the options of the whole."""

from typing import Annotated

import typer

from smoothlink import __version__
from smoothlink.cli.compare import compare
from smoothlink.cli.convert import convert
from smoothlink.cli.demo import demo
from smoothlink.cli.evaluate import evaluate
from smoothlink.cli.explain import explain
from smoothlink.cli.guard import debug, guarded
from smoothlink.cli.info import info
from smoothlink.cli.parameters import WithFormer
from smoothlink.cli.predict import predict
from smoothlink.cli.report import report
from smoothlink.cli.reproduce import reproduce
from smoothlink.cli.serve import serve
from smoothlink.cli.split import split
from smoothlink.cli.synth import synth
from smoothlink.cli.train import train
from smoothlink.cli.tune import tune

app = typer.Typer(
    help="Classification with very many labels: from a labelled file to a model that predicts.",
    epilog="Start with: smoothlink demo",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["--help", "-h"]},
)
for command in (
    demo,
    train,
    predict,
    evaluate,
    explain,
    report,
    compare,
    tune,
    reproduce,
    serve,
    info,
    convert,
    split,
    synth,
):
    app.command(command.__name__, cls=WithFormer if command is train else None)(guarded(command))


def show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"smoothlink {__version__}")
        raise typer.Exit


@app.callback()
def whole(
    version: Annotated[
        bool, typer.Option("--version", help="Show the version.", callback=show_version, is_eager=True)
    ] = False,
    debugging: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
) -> None:
    debug(debugging)
