"""The fenced blocks of the pages, and running them: Python and `smoothlink` here, curl without a network."""

import ast
import contextlib
import io
import json
import re
import shlex
from pathlib import Path
from typing import Any, NamedTuple

import typer
from commands import run

from smoothlink.cli.app import app

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
FENCE = re.compile(r"^(?P<fence>```+) *(?P<kind>[^\n]*)\n(?P<text>.*?)^(?P=fence)$", re.MULTILINE | re.DOTALL)
BEFORE = re.compile(r"<!-- not run: (.+?) -->\s*\Z", re.DOTALL)
RUN = ("python", "sh")
SHOWN = ("text", "json", "nginx", "ini", "dockerfile", "yaml", "{ .python .signature }")  # not meant to be run
QUICK = ["--effort", "quick"]  # trials on held-out rows would take most of the time of these tests
MAKES_DATA = ("demo", "synth")  # under names of files that the tests prepare for the other pages
SETTLED = {"--effort", "--training"}  # options that leave no trials, or do not go with "quick"


class Block(NamedTuple):
    """A fenced block of a page."""

    page: Path
    line: int
    kind: str
    text: str
    why_not: str | None  # it is not run

    @property
    def where(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def blocks(page: Path) -> list[Block]:
    text = page.read_text(encoding="utf-8")
    found = []
    for match in FENCE.finditer(text):
        why = BEFORE.search(text[: match.start()])
        line = text.count("\n", 0, match.start()) + 1
        found.append(Block(page, line, match["kind"].strip(), match["text"], why and why[1]))
    return found


def commands_in(block: Block) -> list[list[str]]:
    """The lines of a shell block as words; comments are left out and continued lines joined."""
    lines = block.text.replace("\\\n", " ").splitlines()
    return [words for line in lines if (words := shlex.split(line, comments=True))]


def smoothlink_calls(block: Block) -> list[list[str]]:
    """What follows `smoothlink` in a block of any kind: lines of a shell, of a service, of a container."""
    text = re.sub(r"^(ExecStart=|CMD )", "", block.text.replace("\\\n", " "), flags=re.MULTILINE)
    calls = []
    for line in text.splitlines():
        words = json.loads(line) if line.startswith('["') else split(line)
        while words and "=" in words[0]:
            words = words[1:]
        if words and words[0].rpartition("/")[2] == "smoothlink":
            calls.append(words[1:])
    return calls


def split(line: str) -> list[str]:
    """The words of a line; none where quotes do not match, as in prose."""
    try:
        return shlex.split(line, comments=True)
    except ValueError:
        return []


def check_options(call: list[str]) -> None:
    """Raises where the command has no such option, or too many or too few words."""
    group: Any = typer.main.get_command(app)
    command = group.commands[call[0]]
    command.make_context(call[0], [word for word in call[1:] if word != "-h"])


def run_python(block: Block, namespace: dict[str, Any]) -> str:
    """Runs it, and returns what it prints."""
    tree = ast.parse("\n" * block.line + block.text, filename=block.where)
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(compile(tree, block.where, "exec"), namespace)
    return out.getvalue()


def run_shell(block: Block, client: Any, wrong: str | None = None, *, fresh: bool = False) -> None:
    """Runs each line; where `wrong` is given, they must fail with this message.

    In a `fresh` folder there is nothing that the lines before did not make, so that nothing has to be overwritten.
    """
    for words in commands_in(block):
        program, *rest = words
        if program == "smoothlink":
            given = rest + (QUICK if rest[0] == "train" and not SETTLED & set(rest) else [])
            given += ["--force"] if rest[0] in MAKES_DATA and not fresh else []
            ran = run(*given)
            where = f"{block.where}: {shlex.join(words)}\n{ran.err}"
            assert (ran.code == 0) == (wrong is None), where
            assert wrong is None or plain(wrong) in plain(ran.err), where
        elif program == "curl":
            curl(rest, client, block.where)
        else:
            raise AssertionError(f"{block.where}: {program} cannot be run here; say why in <!-- not run: ... -->")


def plain(message: str) -> str:
    """A message without line ends, boxes and numbers of several digits."""
    return re.sub(r"\d{3,}", "N", " ".join(re.sub(r"[│╭╮╰╯─]", " ", message).split()))


def curl(words: list[str], client: Any, where: str) -> None:
    """`curl URL -H HEADER -d BODY`, to an application in this process."""
    url, pairs = words[0], list(zip(words[1::2], words[2::2], strict=True))
    headers = dict(value.split(": ", 1) for flag, value in pairs if flag == "-H")
    body = next((value for flag, value in pairs if flag == "-d"), None)
    answer = client.request("POST" if body else "GET", url.partition(":8000")[2], content=body, headers=headers)
    assert answer.status_code == 200, f"{where}: {answer.text}"
