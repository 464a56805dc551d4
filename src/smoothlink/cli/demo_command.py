"""`smoothlink demo`: many-label classification of docstrings, without a download."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from smoothlink.cli.evaluate_command import interval
from smoothlink.cli.screen import Screen, number, print_json, table
from smoothlink.cli.shared_options import AsJson, Force, Quiet
from smoothlink.data.overwrite import writable
from smoothlink.errors import plural

if TYPE_CHECKING:
    from smoothlink.demo.demo_run import Problem
    from smoothlink.metrics.evaluate import Evaluation

MOST = 4  # labels shown
WORTH_SHOWING = 0.05  # probability below which a label after the first is left out
YOURS = 'Now ask it yourself: smoothlink demo "your sentence"'
BASELINE = (
    "independent ridge: scikit-learn's Ridge, one a label, on the same features, with its ridge and a calibration from "
    "held-out rows too. ↓: less is better."
)


class Report(NamedTuple):
    """What the demo found."""

    questions: tuple[str, ...]
    answers: list[list[tuple[str, float]]]  # the likely labels of each question
    both: tuple[Evaluation, Evaluation] | None  # of the model and of the baseline


def demo(
    sentence: Annotated[
        list[str] | None, typer.Argument(metavar="SENTENCE", help="Answer this instead.", show_default=False)
    ] = None,
    save: Annotated[
        str | None, typer.Option(metavar="FILE", help="Only write the docstrings and their labels, as JSON lines.")
    ] = None,
    force: Force = False,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Learn from the docstrings of Python and SciPy, and answer questions.

    Example: smoothlink demo "solve a sparse linear system"

    Example: smoothlink demo --save docs.jsonl
    """
    began = time.perf_counter()
    screen = Screen(quiet)
    if save is not None:
        if sentence:
            raise typer.BadParameter("A sentence is answered, --save only writes: give one of them.")
        save_corpus(writable(save, kind="data", force=force), screen, as_json)
        return
    report = work(" ".join(sentence or ()), screen, told=not as_json and not quiet)
    seconds = time.perf_counter() - began
    if as_json:
        print_json({**as_object(report), "seconds": round(seconds, 1)})
        return
    if report.both is not None:
        show_metrics(report.both, screen)
    show_answers(report, screen)
    if not quiet:
        screen.out.print(f"{seconds:.0f} s in all. {'' if sentence else YOURS}", markup=False)


def save_corpus(path: str, screen: Screen, as_json: bool) -> None:
    """The corpus as a file of texts, as `train` takes it."""
    with screen.working("reading docstrings"):
        from smoothlink.demo.corpus import build_corpus

        corpus = build_corpus()
        written = corpus.save(path)
    if as_json:
        print_json({"documents": written, "labels": len(corpus.label_names), "output": path})
        return
    screen.note(f"{path}: {plural(written, 'docstring')}, {plural(len(corpus.label_names), 'label')}.")


def work(sentence: str, screen: Screen, *, told: bool) -> Report:
    """Trains and answers; compares with the baseline too, where no sentence waits for its answer."""
    with screen.working("reading docstrings"):
        from smoothlink.demo import demo_run as run
        from smoothlink.demo.corpus import build_corpus

        problem = run.pose(build_corpus())
    if told:
        introduce(problem, screen)
    with screen.stages() as notify:
        model = run.train(problem, notify, settled=bool(sentence))
    if told:
        show_fit(model.summary_, screen)
    questions = (sentence,) if sentence else run.QUESTIONS
    if sentence and not problem.vectorizer.transform([sentence]).nnz:
        screen.note("The docstrings hold none of these words; these labels are the most frequent ones.")
    answers = run.answer(problem, model, questions)
    if sentence:
        return Report(questions, answers, None)
    with screen.working("training and measuring the baseline"):
        return Report(questions, answers, run.compare(problem, model, run.train_baseline(problem)))


def introduce(problem: Problem, screen: Screen) -> None:
    n, n_test, (d, c) = problem.X.shape[0], problem.X_test.shape[0], (problem.X.shape[1], problem.Y.shape[1])
    a_row = (problem.Y.nnz + problem.Y_test.nnz) / (n + n_test)
    screen.out.print(
        f"[bold]Which modules is a docstring from?[/] {n + n_test:,} docstrings of the installed Python, NumPy, SciPy "
        f"and scikit-learn; {plural(d, 'word')}; {plural(c, 'label')}, the parts of module paths, {a_row:.1f} a "
        f"docstring. {n:,} to learn from, {n_test:,} to test."
    )


def show_fit(summary: dict[str, Any], screen: Screen) -> None:
    """What was settled, in a sentence."""
    settled = ", ".join(f"{name.replace('_', ' ')} {number(summary[name])}" for name in ("rank", "ridge", "bandwidth"))
    screen.out.print(
        f"Trained in {sum(summary['seconds'].values()):.0f} s: {settled}, {number(summary['random_features'])} random "
        f"features, {summary['loss']} loss."
    )


def metrics_of(found: Evaluation) -> dict[str, Any]:
    from smoothlink.demo.demo_run import METRICS

    return {key: found.metrics[key]._asdict() for key in METRICS}


def show_metrics(both: tuple[Evaluation, Evaluation], screen: Screen) -> None:
    """Both models side by side, the better value in bold."""
    from smoothlink.demo.demo_run import METRICS

    shown = table("metric", ">smoothlink", ">90 % interval", ">independent ridge", ">90 % interval")
    for key in METRICS:
        ours, theirs = (found.metrics[key] for found in both)
        less_is_better = key in ("hamming", "ece_top")
        better = (ours.value < theirs.value) == less_is_better
        values = [
            f"[bold]{m.value:.4f}[/]" if won else f"{m.value:.4f}" for m, won in ((ours, better), (theirs, not better))
        ]
        shown.add_row(f"{key} {'↓' if less_is_better else ''}", values[0], interval(ours), values[1], interval(theirs))
    screen.out.print(shown)
    screen.out.print(BASELINE, style="dim")


def show_answers(report: Report, screen: Screen) -> None:
    shown = table("question", "labels, with their probabilities")
    for question, labels in zip(report.questions, report.answers, strict=True):
        kept = [pair for i, pair in enumerate(labels[:MOST]) if i == 0 or pair[1] >= WORTH_SHOWING]
        shown.add_row(question.replace("[", r"\["), "  ".join(in_bold_if_likely(*pair) for pair in kept))
    screen.out.print(shown)


def in_bold_if_likely(name: str, p: float) -> str:
    return f"{f'[bold]{name}[/]' if p > 0.5 else name} [dim]{p:.2f}[/]"


def as_object(report: Report) -> dict[str, Any]:
    """The report in JSON's types."""
    both = zip(("smoothlink", "baseline"), report.both or (), strict=False)
    answers = [
        {"question": question, "labels": [{"label": name, "probability": round(p, 6)} for name, p in labels]}
        for question, labels in zip(report.questions, report.answers, strict=True)
    ]
    return {**{name: metrics_of(found) for name, found in both}, "answers": answers}
