"""Links in a log directory: those of the administrator, of the trainer and of the reader are followed, nobody else's."""

from __future__ import annotations

import os
import threading

import pytest

from trainvitals.logs.opening import open_log
from trainvitals.logs.tail import LogSource

TRAINER, OTHER, ATTACKER = 4321, 4322, 4323
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file to another user")


def content(path):
    descriptor, _ = open_log(str(path))
    try:
        return os.read(descriptor, 100)
    finally:
        os.close(descriptor)


def own(path, user):
    os.chown(path, user, user, follow_symlinks=False)


@pytest.fixture
def secret(tmp_path):
    folder = tmp_path / "private"
    folder.mkdir()
    (folder / "job.err").write_text("secret")
    own(folder, OTHER)
    own(folder / "job.err", OTHER)
    return folder


def test_a_file_is_opened_by_whatever_name_leads_to_it(tmp_path, monkeypatch):
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "b" / "x.log").write_text("text")
    (tmp_path / "l").symlink_to("a/b")
    (tmp_path / "m").symlink_to(tmp_path / "l" / ".." / "b" / "x.log")
    (tmp_path / "root").symlink_to("/")
    monkeypatch.chdir(tmp_path)
    for path in (tmp_path / "l" / "x.log", tmp_path / "m", f"{tmp_path}/root{tmp_path}/m", "l//x.log", "./m"):
        assert content(path) == b"text"


def test_what_is_no_file_is_refused_and_no_descriptor_stays_open(tmp_path):
    (tmp_path / "loop").symlink_to("loop")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "zero").symlink_to("/dev/zero")
    before = len(os.listdir("/proc/self/fd"))
    for name in ("loop", "pipe", "zero", "nothing", "."):
        with pytest.raises(OSError):
            open_log(str(tmp_path / name))
    assert len(os.listdir("/proc/self/fd")) == before


@needs_root
@pytest.mark.parametrize("is_followed", [False, True])
def test_a_link_that_another_user_made_to_a_file_or_a_directory_is_not_followed(tmp_path, secret, is_followed):
    logs = tmp_path / "logs"
    (logs / "deep").mkdir(parents=True)
    (logs / "x.err").symlink_to(secret / "job.err")
    (logs / "dir").symlink_to(secret)
    (logs / "deep" / "up").symlink_to("../dir")
    for link in (logs / "x.err", logs / "dir", logs / "deep" / "up"):
        own(link, ATTACKER)
    if is_followed:
        source = LogSource([f"{logs}/*.err", f"{logs}/*/*.err", f"{logs}/deep/*/*.err"])
        for _ in range(5):
            assert source.poll() == [] and source.paths == []
        assert source.counters["unreadable"] == 3
        return
    for path in (logs / "x.err", logs / "dir" / "job.err", logs / "deep" / "up" / "job.err"):
        with pytest.raises(OSError, match="a link to a file of another user"):
            open_log(str(path))


@needs_root
def test_a_link_that_is_refused_does_not_hide_the_file_under_its_own_name(tmp_path, secret):
    (tmp_path / "a.err").symlink_to(secret / "job.err")
    own(tmp_path / "a.err", ATTACKER)
    source = LogSource([f"{tmp_path}/*.err", f"{secret}/*.err"])
    for _ in range(2):
        source.poll()
    assert source.paths == [str(secret / "job.err")]


@needs_root
def test_links_of_the_administrator_the_trainer_and_the_owner_of_the_target_are_followed(tmp_path, secret):
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    (scratch / "job.err").write_text("text")
    own(scratch / "job.err", TRAINER)
    for link_owner, target_owner in ((0, OTHER), (TRAINER, 0), (TRAINER, OTHER), (OTHER, OTHER)):
        own(scratch, target_owner)
        link = tmp_path / f"link-{link_owner}-{target_owner}"
        link.symlink_to(scratch)
        own(link, link_owner)
        assert content(link / "job.err") == b"text"
    refused = tmp_path / "refused"
    refused.symlink_to(scratch)
    own(refused, ATTACKER)
    with pytest.raises(OSError, match="another user"):
        open_log(str(refused / "job.err"))


@needs_root
def test_a_link_that_is_swapped_all_the_time_never_leads_to_the_file_of_another(tmp_path, secret):
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "job.err").write_text("mine")
    own(mine, ATTACKER)
    own(mine / "job.err", ATTACKER)
    is_over = threading.Event()

    def swap():
        number = 0
        while not is_over.is_set():
            number += 1
            new = tmp_path / "new"
            new.symlink_to(secret if number % 2 else mine)
            own(new, ATTACKER)
            new.rename(tmp_path / "job")

    (tmp_path / "job").symlink_to(mine)
    thread = threading.Thread(target=swap)
    thread.start()
    seen = set()
    try:
        for _ in range(1500):
            try:
                seen.add(content(tmp_path / "job" / "job.err"))
            except OSError as error:
                seen.add(error.strerror)
    finally:
        is_over.set()
        thread.join()
    assert seen <= {b"mine", "a link to a file of another user"}
