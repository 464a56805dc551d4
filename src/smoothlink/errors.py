"""What can go wrong, in words: every message says what came, what is possible and what to type."""

import re


class SmoothLinkError(Exception):
    """The base of all errors that the command line prints as one message, without a traceback."""


class DataError(SmoothLinkError, ValueError):
    """A data file or an array that cannot be used: names the file, the line and the remedy."""


class ModelFileError(SmoothLinkError, ValueError):
    """A model file that is damaged, cut short, foreign or of a newer format."""


class DeviceError(SmoothLinkError, RuntimeError):
    """A device that is not there, or has too little memory."""


class ClusterError(SmoothLinkError, RuntimeError):
    """A cluster that is not there, does not fit, or was lost."""


def plural(count: int, noun: str) -> str:
    """1 label, 2 labels, 12,000 labels."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


# What a terminal may take for a command, or show in another order than it is read: controls but for tabs and line ends,
# and marks of the direction of writing.
_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")


def printable(text: str) -> str:
    """Returns text of a file, such as the name of a label, as a terminal can show it: \\x1b for an escape."""
    return _CONTROLS.sub(lambda found: ascii(found[0])[1:-1], text)
