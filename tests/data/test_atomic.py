"""A file or a folder is there as it was, or whole and new."""

import contextlib
import ctypes
import errno
import os
import stat
import sys
from pathlib import Path

import pytest

from smoothlink.data import atomic
from smoothlink.data.atomic import append_line, replace_file, replace_files, replace_folder, temporary_folder


def names(folder):
    return sorted(p.name for p in folder.iterdir())


def test_a_file_that_fails_leaves_the_old_one_and_nothing_else(tmp_path):
    (tmp_path / "a").write_text("old")
    with pytest.raises(TypeError), replace_file(tmp_path / "a") as stream:
        stream.writelines([b"new", None])
    assert (tmp_path / "a").read_text() == "old"
    assert names(tmp_path) == ["a"]


def test_the_old_file_is_there_until_the_new_one_is_whole(tmp_path):
    (tmp_path / "a").write_text("old")
    with replace_file(tmp_path / "a") as stream:
        stream.write(b"new")
        assert (tmp_path / "a").read_text() == "old"
    assert (tmp_path / "a").read_text() == "new"


def test_a_replaced_file_keeps_its_permissions_and_a_new_one_has_the_usual_ones(tmp_path):
    (tmp_path / "private").touch(0o600)
    (tmp_path / "usual").touch()
    for name in ("private", "new"):
        with replace_file(tmp_path / name) as stream:
            stream.write(b"x")
    modes = {name: stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("private", "new", "usual")}
    assert modes["private"] == 0o600
    assert modes["new"] == modes["usual"]


def test_a_link_stays_one(tmp_path):
    (tmp_path / "target").write_text("old")
    (tmp_path / "link").symlink_to("target")
    with replace_file(tmp_path / "link") as stream:
        stream.write(b"new")
    assert os.readlink(tmp_path / "link") == "target"
    assert (tmp_path / "target").read_text() == "new"


def test_what_a_killed_process_left_goes_with_the_next_write(tmp_path):
    (tmp_path / ".a.part").write_text("half of a long")
    (tmp_path / ".b.part").mkdir()
    (tmp_path / ".b.part" / "x").write_text("half")
    with replace_file(tmp_path / "a") as stream:
        stream.write(b"new")
    with replace_folder(tmp_path / "b") as folder:
        (folder / "x").write_text("new")
    assert (tmp_path / "a").read_text() == (tmp_path / "b" / "x").read_text() == "new"
    assert names(tmp_path) == ["a", "b"]


@pytest.mark.skipif(os.name == "nt", reason="Windows has no such locks")
def test_what_another_writer_is_at_stays(tmp_path):
    with replace_file(tmp_path / "a") as first, replace_file(tmp_path / "a") as second:
        first.write(b"first")
        second.write(b"second")
        assert len(names(tmp_path)) == 2
    assert (tmp_path / "a").read_text() == "first"  # which is done last
    with replace_folder(tmp_path / "b") as one, replace_folder(tmp_path / "b") as other:
        (one / "x").write_text("first")
        (other / "x").write_text("second")
        assert len(names(tmp_path)) == 3
    assert (tmp_path / "b" / "x").read_text() == "first"
    assert names(tmp_path) == ["a", "b"]


@pytest.mark.skipif(os.name == "nt", reason="links need rights on Windows")
def test_a_link_in_place_of_the_temporary_file_is_not_followed(tmp_path):
    (tmp_path / "mine").write_text("kept")
    (tmp_path / ".a.part").symlink_to("mine")
    with replace_file(tmp_path / "a") as stream:
        stream.write(b"new")
    assert (tmp_path / "a").read_text() == "new"
    assert (tmp_path / "mine").read_text() == "kept"


@pytest.fixture(params=["a disk without locks", "Windows"])
def no_locks(request, monkeypatch):
    if request.param == "Windows":  # where folders cannot be opened either
        monkeypatch.setattr(atomic, "WINDOWS", True)
        monkeypatch.setattr(atomic.sys, "platform", "win32")
    else:

        def fails(handle, how):
            raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

        monkeypatch.setattr(atomic.fcntl, "flock", fails)


def test_what_needs_no_locks_works_without_them(tmp_path, no_locks):
    for text in ("old", "new"):
        with replace_folder(tmp_path / "a") as folder:
            (folder / "x").write_text(text)
        with replace_files([tmp_path / "b"]) as folder:
            (folder / "b").write_text(text)
        with replace_file(tmp_path / "c") as stream:
            stream.write(text.encode())
        assert {(tmp_path / name).read_text() for name in ("a/x", "b", "c")} == {text}
    with temporary_folder() as folder:
        assert folder.is_dir()
    assert not folder.exists()
    assert names(tmp_path) == ["a", "b", "c"]


def test_what_cannot_be_removed_stays_and_another_name_is_taken(tmp_path, monkeypatch):
    def fails(path, **_):
        raise PermissionError(errno.EACCES, "Permission denied")

    (tmp_path / ".a.part").mkdir()
    with monkeypatch.context() as patched:
        patched.setattr(atomic.shutil, "rmtree", fails)
        with replace_file(tmp_path / "a") as stream:
            stream.write(b"new")
    assert names(tmp_path) == [".a.part", "a"]


def test_writers_that_have_no_locks_take_names_that_are_free(tmp_path, no_locks):
    for number in range(12):
        (tmp_path / f".a{f'.{number}' if number else ''}.part").write_text("of somebody")
    with replace_file(tmp_path / "a") as stream:
        stream.write(b"new")
    assert (tmp_path / "a").read_text() == "new"
    assert len(names(tmp_path)) == 13


@pytest.mark.parametrize("stays", ["old", "new"])
def test_where_names_cannot_be_exchanged_a_folder_is_replaced_in_two_steps_and_never_lost(tmp_path, monkeypatch, stays):
    monkeypatch.setattr(atomic, "_exchange", lambda first, second: False)

    def write(text):
        with replace_folder(tmp_path / "a") as folder:
            (folder / "x").write_text(text)

    def fails(self, target, rename=Path.rename):
        if stays == "old" and target == tmp_path / "a" and "old" not in self.name:
            raise OSError(errno.ENOSPC, "No space left on device")
        return rename(self, target)

    write("old")
    monkeypatch.setattr(Path, "rename", fails)
    with contextlib.suppress(OSError):
        write("new")
    assert (tmp_path / "a" / "x").read_text() == stays
    assert names(tmp_path) == ["a"]


def test_the_old_folder_of_a_writer_that_was_killed_before_it_removed_it_goes(tmp_path):
    for name in ("a", ".a.old.part"):
        (tmp_path / name).mkdir()
    with replace_folder(tmp_path / "a") as folder:
        (folder / "x").touch()
    assert names(tmp_path) == ["a"]
    assert names(tmp_path / "a") == ["x"]


def test_a_folder_whose_writer_was_killed_between_two_renames_comes_back(tmp_path):
    (tmp_path / ".a.old.part").mkdir()
    (tmp_path / ".a.old.part" / "x").write_text("old")
    with pytest.raises(TypeError), replace_folder(tmp_path / "a") as folder:
        (folder / "x").write_bytes(None)
    assert (tmp_path / "a" / "x").read_text() == "old"
    assert names(tmp_path) == ["a"]


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (errno.ENOSPC, "disk is full"),
        (errno.EDQUOT, "disk is full"),
        (errno.EFBIG, "ulimit -f"),
        (errno.EIO, "reports an error"),
        (errno.EROFS, "read-only"),
        (errno.ENAMETOOLONG, "shorter name"),
        (errno.EACCES, "is yours"),
    ],
)
def test_the_remedy_names_the_cause(number, words):
    assert words in atomic.remedy(OSError(number, os.strerror(number)))


def test_a_folder_takes_the_place_of_an_older_one_when_it_is_whole(tmp_path):
    with replace_folder(tmp_path / "a") as folder:
        (folder / "first").touch()
    with pytest.raises(TypeError), replace_folder(tmp_path / "a") as folder:
        (folder / "second").write_bytes(None)
    assert names(tmp_path / "a") == ["first"]
    with replace_folder(tmp_path / "a") as folder:
        (folder / "second").touch()
    assert names(tmp_path / "a") == ["second"]
    assert names(tmp_path) == ["a"]


@pytest.mark.parametrize(("last", "left"), [(0, "ooo"), (1, "oo"), (2, "o"), (3, ""), (4, "n"), (5, "nn"), (6, "nnn")])
def test_files_that_belong_together_are_never_there_as_old_and_new_ones(tmp_path, monkeypatch, last, left):
    """Whichever step is the last."""
    paths = [tmp_path / name for name in "abc"]

    def write(text):
        with replace_files(paths) as folder:
            for path in paths:
                (folder / path.name).write_text(text)

    steps = []

    def then(real):
        def step(self, *given):
            steps.append(self)
            if len(steps) > last:
                raise KeyboardInterrupt
            return real(self, *given)

        return step

    write("o")
    with monkeypatch.context() as patched, contextlib.suppress(KeyboardInterrupt):
        patched.setattr(Path, "unlink", then(Path.unlink))
        patched.setattr(Path, "rename", then(Path.rename))
        write("n")
    assert "".join(path.read_text() for path in paths if path.exists()) == left
    assert set(names(tmp_path)) <= set("abc")


def test_files_that_belong_together_keep_their_permissions_and_stay_if_the_new_ones_fail(tmp_path):
    (tmp_path / "a").touch(0o600)
    with pytest.raises(TypeError), replace_files([tmp_path / "a"]) as folder:
        (folder / "a").write_bytes(None)
    assert names(tmp_path) == ["a"]
    (tmp_path / ".a.part").mkdir()  # of a killed writer
    with replace_files([tmp_path / "a", tmp_path / "b"]) as folder:
        (folder / "a").touch()
        (folder / "b").mkdir()
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == 0o600
    assert names(tmp_path) == ["a", "b"]


def test_temporary_folders_of_killed_processes_go_and_those_in_use_stay(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    (tmp_path / "mine").mkdir()
    with temporary_folder() as first:
        (first / "x").touch()
        (tmp_path / f"{atomic.TEMPORARY}abandoned").mkdir()
        with temporary_folder() as second:
            assert (first / "x").exists()
            assert names(tmp_path) == sorted([first.name, second.name, "mine"])
    assert names(tmp_path) == ["mine"]


@pytest.mark.skipif(os.name == "nt", reason="Windows has no such locks")
def test_a_file_or_folder_that_is_taken_for_abandoned_before_it_is_locked_is_made_again(tmp_path, monkeypatch):
    """As another writer of the same output does that comes between the two steps."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    lock, made = atomic._lock, []

    def come_between(handle):
        if not made:
            made.extend(tmp_path.glob(".*.part"))
            made.extend(tmp_path.glob(f"{atomic.TEMPORARY}*"))
            for path in made:
                path.rmdir() if path.is_dir() else path.unlink()
        return lock(handle)

    monkeypatch.setattr(atomic, "_lock", come_between)
    for write in (replace_file, replace_folder):
        made.clear()
        with write(tmp_path / write.__name__):
            pass
        assert made
    made.clear()
    with temporary_folder() as folder:
        assert folder.exists()
        assert made != [folder]
    assert names(tmp_path) == ["replace_file", "replace_folder"]


@pytest.mark.skipif(os.name == "nt", reason="Windows has no such locks")
def test_a_folder_that_goes_before_it_is_opened_is_made_again(tmp_path, monkeypatch):
    opened, times = atomic._open_folder, []

    def gone(path):
        times.append(path)
        if len(times) == 1:
            path.rmdir()
        return opened(path)

    monkeypatch.setattr(atomic, "_open_folder", gone)
    with replace_folder(tmp_path / "a") as folder:
        (folder / "x").touch()
    assert names(tmp_path) == ["a"]
    assert len(times) == 2


def test_a_system_without_an_exchange_of_names_is_told_from_one_that_fails(tmp_path, monkeypatch):
    if sys.platform == "linux":
        with pytest.raises(FileNotFoundError):
            atomic._exchange(tmp_path / "a", tmp_path / "b")
    monkeypatch.setattr(atomic.ctypes, "CDLL", lambda *_, **__: None)
    assert not atomic._exchange(tmp_path / "a", tmp_path / "b")

    class Library:
        def renameat2(self, *_):
            ctypes.set_errno(errno.EINVAL)  # as file systems answer that have none
            return -1

    monkeypatch.setattr(atomic.ctypes, "CDLL", lambda *_, **__: Library())
    assert not atomic._exchange(tmp_path / "a", tmp_path / "b")
    monkeypatch.setattr(atomic.sys, "platform", "other")
    assert not atomic._exchange(tmp_path / "a", tmp_path / "b")


def test_an_array_that_was_not_written_whole_is_a_full_disk():
    assert "disk is full" in atomic.remedy(OSError("12 requested and 3 written"))


@pytest.mark.parametrize("torn", [b"", b"half of", b"x" * 200_000])
def test_a_line_is_appended_after_the_last_whole_one(tmp_path, torn):
    (tmp_path / "a").write_bytes(torn)
    append_line(tmp_path / "a", b"one\n")
    with (tmp_path / "a").open("ab") as file:
        file.write(torn)
    append_line(tmp_path / "a", b"two\n")
    assert (tmp_path / "a").read_bytes() == b"one\ntwo\n"


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no limit of the size of files")
def test_a_line_for_which_there_is_no_room_leaves_nothing_of_itself(tmp_path):
    import resource

    append_line(tmp_path / "a", b"one\n")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (7, hard))
    try:
        with pytest.raises(OSError, match="File too large"):
            append_line(tmp_path / "a", b"two\n")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert (tmp_path / "a").read_bytes() == b"one\n"


def test_lines_are_appended_where_there_are_no_locks(tmp_path, monkeypatch):
    monkeypatch.setattr(atomic.sys, "platform", "win32")
    for line in (b"one\n", b"two\n"):
        append_line(tmp_path / "a", line)
    assert (tmp_path / "a").read_bytes() == b"one\ntwo\n"
