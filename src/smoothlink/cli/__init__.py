"""The command line: arguments -> one call each. `main` is the entry point; app.py lists the commands."""

import sys
from collections.abc import Sequence


def main(args: Sequence[str] | None = None) -> None:
    """Runs one command and exits: 0; 1 after an error; 2 after wrong usage; 130 after Ctrl-C."""
    try:
        from smoothlink.cli.app import app

        app(debug_first(sys.argv[1:] if args is None else args), prog_name="smoothlink")
    except KeyboardInterrupt:  # before or after a command; within one, guard.py sees it first
        print("Interrupted.", file=sys.stderr)
        sys.exit(130)


def debug_first(args: Sequence[str]) -> list[str]:
    """--debug is an option of the whole command, but people type it last: move it to where it is understood."""
    words = list(args)
    end = words.index("--") if "--" in words else len(words)
    if "--debug" not in words[:end]:
        return words
    return ["--debug", *(word for word in words[:end] if word != "--debug"), *words[end:]]
