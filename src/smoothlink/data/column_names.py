"""Names of labels and features in files of their own: `labels.txt` and `features.txt` beside the data, one a line."""

from collections.abc import Iterable, Sequence
from pathlib import Path

from smoothlink.data.files_on_disk import bare_name, compressed_variants, load, replacing
from smoothlink.errors import DataError

# The second name is the one of the XMC repository's new form.
SIDECARS = {"labels": ("labels.txt", "Y.txt"), "features": ("features.txt", "Xf.txt")}


def beside(path: str, kind: str, count: int) -> list[str] | None:
    """The names of "labels" or "features" next to a data file; None where no file has `count` lines."""
    for name in SIDECARS[kind]:
        if name == bare_name(path) or not count:
            continue
        for sidecar in compressed_variants(Path(path).with_name(name)):
            lines = _lines(sidecar)
            if len(lines) == count:
                return _decoded(sidecar, lines)
    return None


def content_beside(path: str, kind: str, names: Sequence[str]) -> tuple[str, bytes] | None:
    """The file of names to write next to a data file; None where it is there. One of other names is not overwritten."""
    target = Path(path).with_name(SIDECARS[kind][0])
    odd = next((name for name in names if "\n" in name or name.endswith("\r")), None)
    if odd is not None:
        raise DataError(
            f"{target}: the name {odd!r} holds a line break.\nRename it, or write npz, which holds any name."
        )
    content = "".join(f"{name}\n" for name in names).encode()
    for sidecar in compressed_variants(target):
        if _lines(sidecar) != content.split(b"\n")[:-1]:
            raise DataError(
                f"{sidecar} is there already and holds other names.\nWrite into another folder, or move it."
            )
        return None
    return str(target), content


def write_beside(files: Iterable[tuple[str, bytes]]) -> None:
    """Writes files of names."""
    for target, content in files:
        with replacing(target) as stream:
            stream.write(content)


def _lines(path: Path) -> list[bytes]:
    if path.stat().st_size == 0:
        return []
    lines = load(str(path)).data.tobytes().split(b"\n")
    if not lines[-1]:
        lines.pop()
    return [line.removesuffix(b"\r") for line in lines]


def _decoded(path: Path, lines: list[bytes]) -> list[str]:
    names = []
    for number, line in enumerate(lines, 1):
        try:
            names.append(line.decode())
        except UnicodeDecodeError as e:
            raise DataError(
                f"{path}, line {number}: the name is not UTF-8 ({e.reason}).\nSave the file as UTF-8."
            ) from e
    return names
