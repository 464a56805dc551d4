"""What can go wrong, in words: every message says what came, what is possible and what to type."""


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
