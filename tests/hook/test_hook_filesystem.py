import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainvitals.hook import Recorder, recorder
from trainvitals.hook.filesystem import can_hang, mount_type, mounts

TABLE = r"""
22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
30 22 0:5 / /mnt/data rw shared:2 - nfs4 server:/data rw,hard
31 30 0:6 / /mnt/data/local rw shared:3 - xfs /dev/sdb rw
32 22 0:7 / /mnt/with\040space rw - fuse.sshfs host:/ rw
33 22 0:8 / /scratch rw - lustre mds@tcp:/s rw
34 22 0:9 / /over rw - nfs server:/x rw
35 22 0:9 / /over rw - tmpfs tmpfs rw
"""


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/home/run", "ext4"),
        ("/mnt/data/run", "nfs4"),
        ("/mnt/data", "nfs4"),
        ("/mnt/database", "ext4"),
        ("/mnt/data/local/run", "xfs"),
        ("/mnt/with space/run", "fuse.sshfs"),
        ("/scratch/x", "lustre"),
        ("/over/x", "tmpfs"),
    ],
)
def test_the_longest_and_latest_mount_point_decides(path, kind):
    assert mount_type(path, mounts(TABLE)) == kind


@pytest.mark.parametrize(
    ("path", "hangs"), [("/mnt/data/r", True), ("/mnt/with space/r", True), ("/scratch/r", True), ("/srv/r", False)]
)
def test_network_and_fuse_file_systems_can_hang(path, hangs, tmp_path):
    (tmp_path / "mountinfo").write_text(TABLE)
    assert can_hang(path, str(tmp_path / "mountinfo")) is hangs


def test_links_are_followed_to_the_file_system_behind_them(tmp_path):
    (tmp_path / "mountinfo").write_text(f"22 1 8:1 / / rw - ext4 /dev/sda1 rw\n30 22 0:5 / {tmp_path}/far rw - nfs4 s:/d rw\n")
    table = str(tmp_path / "mountinfo")
    (tmp_path / "near").mkdir()
    (tmp_path / "link").symlink_to("far/runs")
    (tmp_path / "near" / "back").symlink_to("../link")
    (tmp_path / "absolute").symlink_to(tmp_path / "far")
    (tmp_path / "loop").symlink_to("loop")
    for there in ("far", "far/not/there/yet", "link/run", "near/back/run", "absolute/run", "near/../far"):
        assert can_hang(f"{tmp_path}/{there}", table), there
    for here in ("near", "near/run", "loop/run", "farther", "far/../near", "not/there/yet"):
        assert can_hang(f"{tmp_path}/{here}", table) is (here == "far/../near"), here  # nothing behind `far` is asked


@given(st.text(alphabet="/.ab\0", max_size=30))
def test_any_path_is_looked_up(path):
    assert isinstance(can_hang("/" + path), bool)


def test_without_a_mount_table_nothing_is_said_to_hang(tmp_path):
    assert can_hang("/mnt/data/r", str(tmp_path / "missing")) is False


@given(st.text(), st.text())
def test_any_text_is_read_as_a_mount_table(path, table):
    assert isinstance(mount_type(path, mounts(table)), str)


def test_auto_is_direct_here_and_queued_where_a_write_can_hang(tmp_path, monkeypatch):
    with Recorder(tmp_path) as local:
        assert local.mode == "direct"
    monkeypatch.setattr(recorder, "can_hang", lambda path: True)
    with Recorder(tmp_path) as remote:
        assert remote.mode == "queued"
