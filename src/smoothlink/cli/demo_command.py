"""`smoothlink demo`: many-label classification of docstrings, without a download."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from smoothlink.cli.screen import Screen, number, print_json, table
from smoothlink.cli.shared_options import AsJson, Force, Quiet
from smoothlink.data.overwrite import writable
from smoothlink.errors import plural
from smoothlink.metrics.names import format_value, interval_text, is_better, metric_of

if TYPE_CHECKING:
    from smoothlink.demo.demo_run import DemoProblem
    from smoothlink.metrics.evaluate import Evaluation

LABELS_PER_SENTENCE = 4  # labels shown
WORTH_SHOWING = 0.05  # probability below which a label after the first is left out
YOURS = 'Now try your own: smoothlink demo "your sentence"'
BASELINE = (
    "baseline: independent classifiers, scikit-learn's Ridge for each label, on the same features, with its ridge and "
    "a calibration from held-out rows too. ↓: less is better."
)


class DemoResult(NamedTuple):
    """What the demo found."""

    sentences: tuple[str, ...]
    labels: list[list[tuple[str, float]]]  # the likely ones of each sentence
    both: tuple[Evaluation, Evaluation] | None  # of the model and of the baseline


def demo(
    sentence: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="SENTENCE", help="A sentence to predict labels for, instead of a few examples.", show_default=False
        ),
    ] = None,
    save: Annotated[
        str | None, typer.Option(metavar="FILE", help="Only write the docstrings and their labels, as JSON lines.")
    ] = None,
    force: Force = False,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Train on the docstrings of Python and SciPy, and predict which modules a sentence is about.

    Example: smoothlink demo "solve a sparse linear system"

    Example: smoothlink demo --save docs.jsonl
    """
    began = time.perf_counter()
    screen = Screen(quiet)
    if save is not None:
        if sentence:
            raise typer.BadParameter(
                "--save only writes the docstrings and predicts nothing; pass --save or a sentence, not both."
            )
        save_corpus(writable(save, kind="data", force=force), screen, as_json)
        return
    result = run_demo(" ".join(sentence or ()), screen, verbose=not as_json and not quiet)
    seconds = time.perf_counter() - began
    if as_json:
        print_json({**as_object(result), "seconds": round(seconds, 1)})
        return
    if result.both is not None:
        show_metrics(result.both, screen)
    show_labels(result, screen)
    if not quiet:
        screen.out.print(f"{seconds:.0f} s in all. {'' if sentence else YOURS}", markup=False)


def save_corpus(path: str, screen: Screen, as_json: bool) -> None:
    """Writes the corpus as a file of texts, as `train` takes it."""
    with screen.working("reading docstrings"):
        from smoothlink.demo.corpus import build_corpus

        corpus = build_corpus()
        written = corpus.save(path)
    if as_json:
        print_json({"documents": written, "labels": len(corpus.label_names), "output": path})
        return
    screen.note(f"{path}: {plural(written, 'docstring')}, {plural(len(corpus.label_names), 'label')}.")


def run_demo(sentence: str, screen: Screen, *, verbose: bool) -> DemoResult:
    """Trains a model and labels sentences; compares with the baseline too, unless a sentence was given."""
    with screen.working("reading docstrings"):
        from smoothlink.demo import demo_run as run
        from smoothlink.demo.corpus import build_corpus

        problem = run.demo_problem(build_corpus())
    if verbose:
        introduce(problem, screen)
    with screen.steps() as notify:
        model = run.train(problem, notify, selected=bool(sentence))
    if verbose:
        show_fit(model.summary_, screen)
    sentences = (sentence,) if sentence else run.SENTENCES
    if sentence and not problem.vectorizer.transform([sentence]).nnz:
        screen.note("The docstrings hold none of these words; these labels are the most frequent ones.")
    labels = run.label_sentences(problem, model, sentences)
    if sentence:
        return DemoResult(sentences, labels, None)
    with screen.working("training and measuring the baseline"):
        return DemoResult(sentences, labels, run.compare_with_baseline(problem, model))


def introduce(problem: DemoProblem, screen: Screen) -> None:
    n, n_test, (d, c) = problem.X.shape[0], problem.X_test.shape[0], (problem.X.shape[1], problem.Y.shape[1])
    per_row = (problem.Y.nnz + problem.Y_test.nnz) / (n + n_test)
    screen.out.print(
        f"[bold]Which modules is a docstring from?[/] {n + n_test:,} docstrings of the installed Python, NumPy, SciPy "
        f"and scikit-learn; {plural(d, 'word')}; {plural(c, 'label')}, the parts of module paths, {per_row:.1f} per "
        f"docstring. {n:,} to learn from, {n_test:,} to test."
    )


def show_fit(summary: dict[str, Any], screen: Screen) -> None:
    """Prints the selected settings in a sentence."""
    selected = ", ".join(f"{name.replace('_', ' ')} {number(summary[name])}" for name in ("rank", "ridge", "bandwidth"))
    screen.out.print(
        f"Trained in {sum(summary['seconds'].values()):.0f} s: {selected}, {number(summary['random_features'])} random "
        f"features, {summary['loss']} loss."
    )


def metrics_of(found: Evaluation) -> dict[str, Any]:
    from smoothlink.demo.demo_run import COMPARED

    return {key: found.metrics[key]._asdict() for key in COMPARED}


def show_metrics(both: tuple[Evaluation, Evaluation], screen: Screen) -> None:
    """Prints both models side by side, the better value in bold."""
    from smoothlink.demo.demo_run import COMPARED

    shown = table("metric", ">smoothlink", ">90 % interval", ">baseline", ">90 % interval")
    for key in COMPARED:
        ours, theirs = (found.metrics[key] for found in both)
        cells = []
        for mine, other in ((ours, theirs), (theirs, ours)):
            value = format_value(key, mine.value)
            cells += [
                f"[bold]{value}[/]" if is_better(key, mine.value, other.value) else value,
                interval_text(key, mine),
            ]
        shown.add_row(f"{key} {'↓' if metric_of(key).lower_is_better else ''}", *cells)
    screen.out.print(shown)
    screen.out.print(BASELINE, style="dim")


def show_labels(result: DemoResult, screen: Screen) -> None:
    shown = table("sentence", "labels, with their probabilities")
    for sentence, labels in zip(result.sentences, result.labels, strict=True):
        kept = [pair for i, pair in enumerate(labels[:LABELS_PER_SENTENCE]) if i == 0 or pair[1] >= WORTH_SHOWING]
        shown.add_row(sentence.replace("[", r"\["), "  ".join(in_bold_if_likely(*pair) for pair in kept))
    screen.out.print(shown)


def in_bold_if_likely(name: str, p: float) -> str:
    return f"{f'[bold]{name}[/]' if p > 0.5 else name} [dim]{p:.2f}[/]"


def as_object(result: DemoResult) -> dict[str, Any]:
    """Returns the result in JSON's types."""
    both = zip(("smoothlink", "baseline"), result.both or (), strict=False)
    labelled = [
        {"sentence": sentence, "labels": [{"label": name, "probability": round(p, 6)} for name, p in labels]}
        for sentence, labels in zip(result.sentences, result.labels, strict=True)
    ]
    return {**{name: metrics_of(found) for name, found in both}, "sentences": labelled}
