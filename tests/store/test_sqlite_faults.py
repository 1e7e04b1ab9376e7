"""What can go wrong with a SQLite file on a real machine, and that the store heals from it by itself."""

from __future__ import annotations

import os
import resource
import shutil
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from trainvitals.errors import StoreError, StoreUnavailable
from trainvitals.records import Point, Step
from trainvitals.schema import MAX_EXTRA_METRICS
from trainvitals.store import sqlite as sqlite_module
from trainvitals.store import sqlite_connection
from trainvitals.store.encode import step_point
from trainvitals.store.sqlite import SqliteStore
from trainvitals.store.sqlite_connection import file_system_type

REPOSITORY = Path(__file__).parents[2]
SECOND = 1_000_000_000
T0 = 1_767_323_045 * SECOND
EVER = (0, 2**62)
BATCH = 20

WRITER = """
import sys
from trainvitals.records import Step
from trainvitals.store.encode import step_point
from trainvitals.store.sqlite import SqliteStore
path, run, first, batches = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
store = SqliteStore(path, busy_timeout_s=60)
for batch in range(first, first + batches):
    steps = range(batch * 20, batch * 20 + 20)
    points = [step_point(run, Step(s, 1, None, {"loss": float(s)}), 1767323045000000000 + s * 1000000) for s in steps]
    store.commit(points, {run: str(batch).encode()})
    print(batch, flush=True)
store.close()
"""


def start_writer(path: Path, run: str, first: int = 0, batches: int = 1_000_000) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", WRITER, str(path), run, str(first), str(batches)],
        stdout=subprocess.PIPE, text=True, cwd=REPOSITORY, env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
    )  # fmt: skip


def train(step: int, run: str = "r", **values: float) -> Point:
    return step_point(run, Step(step, 1, None, values), T0 + step * SECOND)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store" / "t.db"


@pytest.fixture
def store(path: Path) -> Iterator[SqliteStore]:
    store = SqliteStore(path, busy_timeout_s=0.05)
    yield store
    store.close()


def steps_of(store: SqliteStore, run: str = "r") -> list[int]:
    return [int(step) for step in store.raw("train", ["step"], {"run": run}, *EVER)["step"]]


def test_a_writer_killed_ten_times_loses_no_acknowledged_batch_and_tears_none(path: Path) -> None:
    acknowledged = -1
    for round_number in range(10):
        target = acknowledged + 1 + 3 * round_number
        writer = start_writer(path, "killed", acknowledged + 1)
        assert writer.stdout is not None
        for line in writer.stdout:
            acknowledged = int(line)
            if acknowledged >= target:
                break
        writer.kill()
        # Lines that were on their way when it died were acknowledged too.
        acknowledged = max([acknowledged, *(int(line) for line in writer.stdout.read().split("\n")[:-1])])
        writer.stdout.close()
        writer.wait(30)
        store = SqliteStore(path)
        steps = steps_of(store, "killed")
        kept = int(store.load_state("killed")["killed"])
        store.close()
        assert kept >= acknowledged
        assert steps == list(range((kept + 1) * BATCH))  # state and points of the same batch, none torn
        acknowledged = kept
    connection = sqlite3.connect(path)
    assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    connection.close()


def test_two_writer_processes_and_a_reader_get_along(path: Path) -> None:
    writers = [start_writer(path, run, 0, 40) for run in ("a", "b")]
    reader: SqliteStore | None = None
    seen = 0
    while any(writer.poll() is None for writer in writers):
        if path.exists():
            reader = reader or SqliteStore(path, read_only=True, busy_timeout_s=60)
            try:
                count = len(reader.raw("train", ["loss"], {}, *EVER))
            except StoreUnavailable:
                continue  # the very first moments, while the tables are being made
            assert count % BATCH == 0 and count >= seen  # never half a batch, never less than before
            seen = count
    for writer in writers:
        assert writer.stdout is not None
        assert len(writer.stdout.read().split()) == 40
        writer.stdout.close()
        assert writer.wait(30) == 0
    assert reader is not None
    assert steps_of(reader, "a") == steps_of(reader, "b") == list(range(40 * BATCH))
    reader.close()


def test_threads_share_one_store(store: SqliteStore) -> None:
    patient = SqliteStore(store._path, busy_timeout_s=60)
    failures: list[BaseException] = []

    def work(run: str) -> None:
        try:
            for step in range(30):
                patient.write([train(step, run, loss=1.0)])
                patient.buckets("train", ["loss"], {"run": run}, *EVER, 10, "step")
        except BaseException as error:  # noqa: BLE001 - handed to the test below
            failures.append(error)

    threads = [threading.Thread(target=work, args=(f"r{k}",)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert failures == []
    assert all(steps_of(patient, f"r{k}") == list(range(30)) for k in range(4))
    patient.close()


def test_programs_that_meet_on_a_new_file_wait_for_each_other(tmp_path: Path) -> None:
    failures: list[BaseException] = []

    def write(store: SqliteStore, name: str, together: threading.Barrier) -> None:
        try:
            together.wait(30)
            store.write([Point("node", {"node": name}, 1, {"state": "ok"})])
        except BaseException as error:  # noqa: BLE001 - handed to the test below
            failures.append(error)

    for number in range(40):
        stores = [SqliteStore(tmp_path / str(number) / "t.db", busy_timeout_s=60) for _ in range(6)]
        together = threading.Barrier(len(stores))
        threads = [threading.Thread(target=write, args=(store, f"n{k}", together)) for k, store in enumerate(stores)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert failures == []
        assert len(stores[0].latest("node", ["state"], {}, 10, 5)) == len(stores)
        for store in stores:
            store.close()


def test_a_forked_child_writes_through_a_connection_of_its_own(store: SqliteStore) -> None:
    store.write([train(1, loss=1.0)])
    child = os.fork()
    if child == 0:
        code = 1
        try:
            store.write([train(2, loss=2.0)])
            code = 0
        finally:
            os._exit(code)
    assert os.waitpid(child, 0)[1] == 0
    store.write([train(3, loss=3.0)])
    assert steps_of(store) == [1, 2, 3]


def test_a_locked_file_is_unavailable_and_works_again_when_it_is_free(store: SqliteStore, path: Path) -> None:
    store.write([train(1, loss=1.0)])
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreUnavailable, match="locked by another process"):
        store.commit([train(2, loss=1.0)], {"k": b"v"})
    assert steps_of(store) == [1]  # readers are not in the way
    other.execute("ROLLBACK")
    other.close()
    store.write([train(2, loss=1.0)])
    assert steps_of(store) == [1, 2] and store.load_state("k") == {}


def test_a_file_that_is_no_database_is_named_and_a_good_one_in_its_place_works_at_once(store: SqliteStore, path: Path) -> None:
    store.write([train(1, loss=1.0)])
    backup = path.with_suffix(".backup")
    source, target = sqlite3.connect(path), sqlite3.connect(backup)
    source.backup(target)
    source.close()
    target.close()
    for leftover in path.parent.glob("t.db*"):
        leftover.unlink()
    path.write_bytes(b"this is not a database, it is a shopping list\n" * 100)
    with pytest.raises(StoreUnavailable, match=f"{path} is not a SQLite database"):
        store.write([train(2, loss=1.0)])
    assert not store.health().is_reachable
    backup.replace(path)
    assert steps_of(store) == [1]
    store.write([train(2, loss=1.0)])
    assert steps_of(store) == [1, 2] and store.health().is_reachable


def test_a_damaged_file_is_unavailable_and_heals_when_it_is_moved_away(store: SqliteStore, path: Path) -> None:
    store.write([train(step, loss=1.0) for step in range(5000)])
    store.close()
    with path.open("r+b") as file:
        file.seek(4096)
        file.write(b"\xff" * (path.stat().st_size - 8192))
    damaged = SqliteStore(path)
    with pytest.raises(StoreUnavailable, match="damaged"):
        damaged.raw("train", ["loss"], {}, *EVER)
    for leftover in path.parent.glob("t.db*"):
        leftover.rename(leftover.with_name("bad-" + leftover.name))
    damaged.write([train(1, loss=1.0)])
    assert steps_of(damaged) == [1]
    damaged.close()


def test_a_deleted_store_is_made_anew_with_its_rights(store: SqliteStore, path: Path) -> None:
    old_mask = os.umask(0o077)
    try:
        store.write([train(1, loss=1.0)])
        assert path.stat().st_mode & 0o7777 == 0o660
        assert path.parent.stat().st_mode & 0o7777 == 0o2770
        shutil.rmtree(path.parent)
        store.write([train(2, run="other", loss=1.0)])
    finally:
        os.umask(old_mask)
    assert steps_of(store) == [] and steps_of(store, "other") == [2]


@pytest.mark.parametrize("read_only", [True, False])
def test_an_unreadable_file_is_unavailable_until_it_may_be_read(store: SqliteStore, path: Path, read_only: bool) -> None:
    store.write([train(1, loss=1.0)])
    store.close()
    again = SqliteStore(path, read_only=read_only)
    user = os.geteuid()
    path.chmod(0)
    path.parent.chmod(0)
    if user == 0:  # root may read everything: be nobody for a moment
        os.seteuid(65534)
    try:
        with pytest.raises(StoreUnavailable, match=f"{path} "):
            again.raw("train", ["loss"], {}, *EVER)
        assert not again.health().is_reachable
    finally:
        os.seteuid(user)
        path.parent.chmod(0o2770)
        path.chmod(0o660)
    assert steps_of(again) == [1]
    again.close()


def test_a_directory_in_the_files_place_is_unavailable(path: Path) -> None:
    path.mkdir(parents=True)
    store = SqliteStore(path)
    with pytest.raises(StoreUnavailable, match=str(path)):
        store.write([train(1, loss=1.0)])
    path.rmdir()
    store.write([train(1, loss=1.0)])
    assert steps_of(store) == [1]
    store.close()


def test_a_full_disk_keeps_what_was_committed_and_goes_on_when_there_is_room(store: SqliteStore, path: Path) -> None:
    """A file size limit stands for the full disk: SQLite sees a failed write either way."""
    store.commit([train(step, loss=1.0) for step in range(100)], {"k": b"1"})
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (path.with_name("t.db-wal").stat().st_size + 50_000, hard))
    try:
        with pytest.raises(StoreUnavailable, match="disk"):
            for batch in range(1, 200):
                steps = range(batch * 100, batch * 100 + 100)
                store.commit([train(step, loss=1.0) for step in steps], {"k": str(batch + 1).encode()})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    committed = int(store.load_state("k")["k"])
    assert steps_of(store) == list(range(committed * 100))
    store.write([train(committed * 100, loss=1.0)])
    assert len(steps_of(store)) == committed * 100 + 1


def test_a_newer_schema_is_refused_with_a_sentence(store: SqliteStore, path: Path) -> None:
    store.write([train(1, loss=1.0)])
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA user_version=99")
    connection.close()
    newer = SqliteStore(path)
    with pytest.raises(StoreError, match="newer Trainvitals"):
        newer.write([train(2, loss=1.0)])
    newer.close()


def test_the_database_of_another_program_is_left_alone(path: Path) -> None:
    path.parent.mkdir(parents=True)
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE customers (name TEXT)")
    connection.close()
    store = SqliteStore(path)
    with pytest.raises(StoreError, match="another program"):
        store.write([train(1, loss=1.0)])
    store.close()


def test_a_reader_of_a_store_that_is_not_there_yet_waits_for_the_writer(path: Path, store: SqliteStore) -> None:
    reader = SqliteStore(path, read_only=True)
    with pytest.raises(StoreUnavailable, match="no store at"):
        steps_of(reader)
    assert not reader.health().is_reachable and not path.exists()
    store.write([train(1, loss=1.0)])
    assert steps_of(reader) == [1]
    with pytest.raises(StoreError, match="reading only"):
        reader.write([train(2, loss=1.0)])
    with pytest.raises(StoreError, match="reading only"):
        reader.delete_before("train", T0)
    reader.close()


def test_extra_metrics_beyond_the_bound_are_dropped_counted_and_shown(store: SqliteStore) -> None:
    names = [f"expert_{k}" for k in range(MAX_EXTRA_METRICS)]
    store.write([train(1, **dict.fromkeys(names, 1.0))])
    store.write([train(2, loss=5.0, one_too_many=1.0, expert_7=2.0), train(1, "other", one_too_many=3.0)])
    frame = store.raw("train", ["loss", "one_too_many", "expert_7"], {"run": "r"}, *EVER)
    assert frame["one_too_many"].isna().all() and frame["expert_7"].to_list() == [1.0, 2.0] and frame["loss"][1] == 5.0
    assert store.raw("train", ["one_too_many"], {"run": "other"}, *EVER)["one_too_many"].to_list() == [3.0]
    health = store.health()
    assert health.dropped == 1 and "one_too_many" in health.text


def test_a_large_write_ahead_log_is_folded_into_the_file(store: SqliteStore, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store.write([train(1, loss=1.0)])
    monkeypatch.setattr(sqlite_module, "WAL_LIMIT_BYTES", 0)
    store.write([train(2, loss=1.0)])
    assert path.with_name("t.db-wal").stat().st_size == 0
    assert steps_of(store) == [1, 2]


def test_a_reader_in_the_way_of_the_fold_does_not_stop_the_writer(
    store: SqliteStore, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.write([train(1, loss=1.0)])
    reader = sqlite3.connect(path, isolation_level=None)
    reader.execute("BEGIN")
    reader.execute("SELECT count(*) FROM train").fetchone()
    monkeypatch.setattr(sqlite_module, "WAL_LIMIT_BYTES", 0)
    store.write([train(2, loss=1.0)])
    store.write([train(3, loss=1.0)])
    reader.close()
    assert steps_of(store) == [1, 2, 3]


MOUNTS = r"""
22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw
40 22 0:35 / /shared rw,relatime shared:20 - nfs4 host:/x rw,vers=4.2
41 40 254:1 / /shared/local\040disk rw - xfs /dev/vdb rw
42 22 0:36 / /scratch rw - lustre x@tcp:/fs rw
"""


@pytest.mark.parametrize(
    ("path", "kind"),
    [("/var/lib/t.db", "ext4"), ("/shared/t.db", "nfs4"), ("/shared/local disk/t.db", "xfs"), ("/scratch/a/b", "lustre"),
     ("/sharedness/t.db", "ext4")],
)  # fmt: skip
def test_the_file_system_of_a_path_is_the_deepest_mount_above_it(path: str, kind: str) -> None:
    assert file_system_type(path, MOUNTS) == kind


def test_a_network_file_system_is_refused_with_a_sentence(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite_connection, "file_system_type", lambda path, mountinfo: "nfs4")
    store = SqliteStore(path)
    with pytest.raises(StoreError, match=r"network file system \(nfs4\)"):
        store.write([train(1, loss=1.0)])
    assert not path.exists()
    store.close()
