"""The commands and the options of the whole."""

from typing import Annotated

import typer

from smoothlink import __version__
from smoothlink.cli.audit_command import audit
from smoothlink.cli.check_command import check
from smoothlink.cli.compare_command import compare
from smoothlink.cli.convert_command import convert
from smoothlink.cli.demo_command import demo
from smoothlink.cli.error_messages import debug, guarded
from smoothlink.cli.evaluate_command import evaluate
from smoothlink.cli.explain_command import explain
from smoothlink.cli.info_command import info
from smoothlink.cli.living_commands import add_labels, forget, refresh, update
from smoothlink.cli.parameter_options import TrainCommand
from smoothlink.cli.predict_command import predict
from smoothlink.cli.recalibrate_command import recalibrate
from smoothlink.cli.report_command import report
from smoothlink.cli.reproduce_command import reproduce
from smoothlink.cli.serve_command import serve
from smoothlink.cli.shared_options import PlainCommand, PlainGroup
from smoothlink.cli.split_command import split
from smoothlink.cli.synth_command import synth
from smoothlink.cli.train_command import train
from smoothlink.cli.tune_command import tune
from smoothlink.cli.vocabulary_command import vocabulary
from smoothlink.cli.watch_command import watch

app = typer.Typer(
    cls=PlainGroup,
    help="Classification with very many labels: from a labelled file to a model that predicts.",
    epilog="Start with: smoothlink demo",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["--help", "-h"]},
)
for command in (
    demo,
    check,
    audit,
    train,
    update,
    forget,
    add_labels,
    refresh,
    predict,
    evaluate,
    explain,
    recalibrate,
    report,
    compare,
    tune,
    reproduce,
    serve,
    watch,
    info,
    vocabulary,
    convert,
    split,
    synth,
):
    app.command(command.__name__.replace("_", "-"), cls=TrainCommand if command is train else PlainCommand)(
        guarded(command)
    )


def show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"smoothlink {__version__}")
        raise typer.Exit


@app.callback()
def global_options(
    version: Annotated[
        bool, typer.Option("--version", help="Show the version.", callback=show_version, is_eager=True)
    ] = False,
    debugging: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
) -> None:
    debug(debugging)
