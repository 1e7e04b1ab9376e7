"""``audit verify`` names the first broken record, and ``audit show`` prints what was kept."""

from __future__ import annotations

import json

import pytest

from trainvitals.__main__ import main
from trainvitals.clock import ManualClock
from trainvitals.control.audit import append
from trainvitals.control.audited import ask
from trainvitals.identity import event_id
from trainvitals.records import Event
from trainvitals.store.encode import event_point
from trainvitals.store.sqlite import SqliteStore


@pytest.fixture
def run_dir(tmp_path):
    made = tmp_path / "run"
    made.mkdir()
    clock = ManualClock()
    ask(made, "r", action="pause", by="ana", source="cli", reason="spike; token hf_abcdefghijklmnopqrstuvwxyz012345", clock=clock)
    append(made, "acknowledged", by="trainer", source="watch", data={"seq": 1}, clock=clock, run="r")
    append(made, "applied", by="trainer", source="watch", data={"seq": 1, "bad": "\x1b[31m"}, clock=clock, run="r")
    return made


def file_of(run_dir):
    return run_dir / "control" / "audit.jsonl"


def test_a_whole_audit_is_exit_code_0(run_dir, capsys):
    assert main(["audit", "verify", str(run_dir)]) == 0
    assert "The audit is whole: records 1 to 3, and 1 heads kept elsewhere fit." in capsys.readouterr().out


def test_the_first_broken_record_is_named_with_exit_code_1(run_dir, capsys):
    file_of(run_dir).write_bytes(file_of(run_dir).read_bytes().replace(b'"acknowledged"', b'"acknowledgeD"'))
    assert main(["audit", "verify", str(run_dir), "--json"]) == 1
    out = capsys.readouterr()
    told = json.loads(out.out)
    assert (told["outcome"], told["broken"]) == ("broken", 2)
    assert "broken at record 2" in out.err


def test_a_cut_end_is_found_with_the_heads_of_the_store(run_dir, tmp_path, capsys):
    config = tmp_path / "trainvitals.toml"
    config.write_text(f'store = "sqlite://{tmp_path}/store.db"\n[[runs]]\nname = "r"\ndir = "{run_dir}"\n')
    head = json.loads(file_of(run_dir).read_bytes().splitlines()[-1])
    store = SqliteStore(tmp_path / "store.db")
    told = Event("audit", 10**18, id=event_id("r", "audit", 3, head["hash"]), data={"n": 3, "hash": head["hash"]})
    store.write([event_point("r", told)])
    store.close()
    assert main(["audit", "verify", str(run_dir), "--config", str(config)]) == 0
    file_of(run_dir).write_bytes(b"".join(file_of(run_dir).read_bytes().splitlines(keepends=True)[:2]))
    assert main(["audit", "verify", str(run_dir)]) == 0
    assert main(["audit", "verify", str(run_dir), "--config", str(config)]) == 1
    assert "the end was cut off" in capsys.readouterr().out


def test_the_newest_records_are_shown_without_secrets_or_control_characters(run_dir, capsys):
    assert main(["audit", "show", str(run_dir), "--last", "2"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == ["2", "3"]
    assert "\x1b" not in lines[1]
    assert main(["audit", "show", str(run_dir), "--json"]) == 0
    records = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [record["kind"] for record in records] == ["request", "acknowledged", "applied"]
    assert "abcdefghij" not in records[0]["data"]["reason"]


def test_an_empty_directory_is_no_fault_and_a_missing_one_is_wrong_usage(tmp_path, capsys):
    assert main(["audit", "verify", str(tmp_path)]) == 0
    assert "Nothing was audited here yet" in capsys.readouterr().out
    assert main(["audit", "verify", str(tmp_path / "none")]) == 2
    with pytest.raises(SystemExit, match="2"):
        main(["audit", "show", str(tmp_path), "--last", "0"])
