"""Damaged journals of studies are refused with the name of the file, and nothing else in its place is waited for."""

import os
import random

import pytest
from commands import labelled, run, succeed
from fuzz import mutated
from hostile import limited

from smoothlink.data.read import write


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    """A search of one trial; returns the command that resumes it with another journal, and the sound journal."""
    import numpy as np

    folder = tmp_path_factory.mktemp("study")
    write(labelled(np.random.default_rng(0), 40), folder / "a.txt")
    command = ["tune", folder / "a.txt", "-o", folder / "t.json", "--trials", 1, "--quiet", "--force"]
    succeed(*command, "--study", folder / "s.journal")
    return lambda path: run(*command, "--resume", "--study", path), (folder / "s.journal").read_bytes()


def lines_that_lack(key):
    return lambda content: content.replace(f'"{key}":'.encode(), b'"x":')


DAMAGE = {
    **{f"no {key}": lines_that_lack(key) for key in ("op_code", "study_name", "trial_id", "user_attr", "state")},
    "an unknown operation": lambda content: content.replace(b'"op_code":4', b'"op_code":99'),
    "an operation that is text": lambda content: content.replace(b'"op_code":4', b'"op_code":"4"'),
    "JSON that is nested deep": lambda content: content + b'{"op_code":' + b"[" * 100_000 + b"\n",
    "bytes that are not UTF-8": lambda content: content.replace(b"smoothlink", b"\xff\xfe", 1),
    "a line that is no object": lambda content: content + b"[1]\n",
    **{f"a mutation {i}": lambda content, i=i: mutated(content, random.Random(i)) for i in range(12)},
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_journal_is_refused_in_words_or_read(study, tmp_path, damage):
    resume, sound = study
    path = tmp_path / "m.journal"
    path.write_bytes(DAMAGE[damage](sound))
    ran = resume(path)
    assert "bug in smoothlink" not in ran.err
    assert ran.code in (0, 1)
    assert ran.code == 0 or "m.journal" in ran.err or "it was killed" in ran.err  # a journal cut after a line


def test_a_pipe_in_place_of_a_journal_is_not_waited_for(study, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with limited():
        ran = study[0](tmp_path / "pipe")
    assert ran.code == 1
    assert "is not a study of `smoothlink tune`" in ran.err
