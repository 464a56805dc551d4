"""The Tab key completes commands, options and their values; the help names no Python types."""

import shutil
import subprocess
import sys

import pytest
from commands import succeed


def completed(monkeypatch, capsys, *words):
    """What is offered for the last of these words."""
    from smoothlink.cli import main

    monkeypatch.setenv("_SMOOTHLINK_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", "\n".join(["smoothlink", *words]))
    monkeypatch.setenv("COMP_CWORD", str(len(words)))
    with pytest.raises(SystemExit):
        main([])
    return capsys.readouterr().out.split()


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (["tr"], {"train"}),
        (["train", "--label-se"], {"--label-separator"}),
        (["train", "--effort", ""], {"full", "quick"}),
        (["train", "--kernel", "l"], {"laplacian", "linear"}),
        (["evaluate", "--boot"], {"--bootstraps"}),
        (["predict", "model.safet"], set()),  # the shell completes names of files
    ],
)
def test_the_tab_key_offers(words, offered, monkeypatch, capsys):
    assert set(completed(monkeypatch, capsys, *words)) == offered


@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed")
def test_bash_completes_after_the_printed_script_was_read(tmp_path):
    program = tmp_path / "smoothlink"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m smoothlink "$@"\n')
    program.chmod(0o755)
    script = f"""
        export PATH={tmp_path}:$PATH
        script=$(smoothlink --show-completion) && eval "$script"
        COMP_WORDS=(smoothlink comp) COMP_CWORD=1
        _smoothlink_completion smoothlink
        echo "${{COMPREPLY[@]}}"
    """
    ran = subprocess.run(["bash", "--norc", "-c", script], capture_output=True, text=True, check=False)
    assert ran.stdout == "compare\n", ran.stderr


@pytest.mark.parametrize("command", [[], ["train"], ["evaluate"], ["predict"], ["synth"], ["serve"]])
def test_help_names_no_python_types(command):
    shown = succeed(*command, "--help").out
    assert "--help" in shown
    for kind in ("bool", "str", "int", "float", "list["):
        assert f"<{kind}" not in shown
