"""A file or a folder is there as it was, or whole and new."""

import os
import stat

import pytest

from smoothlink.data.atomic import replace_file, replace_folder


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


def test_what_a_killed_process_left_is_overwritten_under_a_lock(tmp_path):
    (tmp_path / ".a.part").write_text("half of a long")
    with replace_file(tmp_path / "a", locked=True) as stream:
        stream.write(b"new")
    assert (tmp_path / "a").read_text() == "new"
    assert names(tmp_path) == ["a"]


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
