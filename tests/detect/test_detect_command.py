"""The command ``detect FILE``: its rows, exit codes and what it reads."""

from __future__ import annotations

import ast
import gzip
import io
import json
import subprocess
import sys
from pathlib import Path

import pytest
from made_up import curve

import trainvitals.detect
from trainvitals.__main__ import main

KEYS = ["rule", "severity", "first_step", "last_step", "detected_step", "value", "expected", "message"]


def csv_of(steps) -> str:
    lines = ["# made up", "step,loss,grad_norm,lr,throughput"]
    for s in steps:
        cells = [str(s.values.get(name, s.nonfinite.get(name, ""))) for name in ("loss", "grad_norm", "lr", "tokens_per_s")]
        lines.append(",".join([str(s.step), *cells]))
    return "\n".join(lines) + "\n"


def spiky(points: int = 900):
    def change(k, values):
        if 300 <= k < 320 or k >= 800:
            values["loss"] += 3.0

    return curve(points, change=change)


def rows(text: str) -> list[dict]:
    return [json.loads(line) for line in text.splitlines()]


def test_each_finding_is_one_row_and_a_fault_is_exit_code_1(tmp_path: Path, capsys):
    file = tmp_path / "curve.csv"
    file.write_text(csv_of(spiky()))
    assert main(["detect", str(file)]) == 1
    found = rows(capsys.readouterr().out)
    assert all(list(row) == KEYS for row in found)
    spikes = [row for row in found if row["rule"] == "loss_spike"]
    assert len(spikes) == 2
    assert spikes[0]["severity"] == "critical" and spikes[0]["first_step"] == 301 and spikes[0]["detected_step"] == 303
    assert 320 <= spikes[0]["last_step"] <= 330
    assert spikes[1]["last_step"] is None
    assert [row["rule"] for row in found].count("breaker_trip") == 0


def test_a_healthy_curve_is_exit_code_0(tmp_path: Path, capsys):
    file = tmp_path / "curve.csv"
    file.write_text(csv_of(curve(900)))
    assert main(["detect", str(file)]) == 0
    assert all(row["severity"] == "info" for row in rows(capsys.readouterr().out))


def test_gzip_and_stdin_give_the_same_rows(tmp_path: Path, capsys, monkeypatch):
    text = csv_of(spiky()).encode()
    plain, packed = tmp_path / "curve.csv", tmp_path / "curve.csv.gz"
    plain.write_bytes(text)
    packed.write_bytes(gzip.compress(text))
    outputs = []
    for file in (plain, packed):
        assert main(["detect", str(file)]) == 1
        outputs.append(capsys.readouterr().out)
    for content in (text, gzip.compress(text)):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BufferedReader(io.BytesIO(content))))
        assert main(["detect", "-"]) == 1
        outputs.append(capsys.readouterr().out)
    assert len(set(outputs)) == 1


@pytest.mark.parametrize("content", [b"", b"hello\nworld\n", b"\x1f\x8b\x08\x00broken"])
def test_a_file_without_steps_is_exit_code_2_with_a_sentence(tmp_path: Path, capsys, content: bytes):
    file = tmp_path / "no.log"
    file.write_bytes(content)
    assert main(["detect", str(file)]) == 2
    assert "trainvitals detect:" in capsys.readouterr().err


def test_a_log_that_holds_only_a_death_is_a_dead_run(tmp_path: Path, capsys):
    file = tmp_path / "err.log"
    file.write_text("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB\n")
    assert main(["detect", str(file)]) == 1
    assert [row["rule"] for row in rows(capsys.readouterr().out)] == ["run_dead", "out_of_memory"]


def test_a_missing_file_is_exit_code_2(tmp_path: Path, capsys):
    assert main(["detect", str(tmp_path / "none.csv")]) == 2
    assert "none.csv" in capsys.readouterr().err


def test_settings_change_the_rules(tmp_path: Path, capsys):
    file, config = tmp_path / "curve.csv", tmp_path / "trainvitals.toml"
    file.write_text(csv_of(spiky()))
    config.write_text("[detect.loss_spike]\nwarmup_points = 100000\nwarmup_steps = 100000\n")
    assert main(["detect", str(file), "--config", str(config)]) == 0
    capsys.readouterr()


def test_detection_needs_neither_pandas_nor_numpy(tmp_path: Path):
    file = tmp_path / "curve.csv"
    file.write_text(csv_of(curve(50)))
    code = (
        "import sys; from trainvitals.__main__ import main; main(['detect', sys.argv[1]]);"
        "assert not {'pandas', 'numpy'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code, str(file)], check=True, timeout=60)


def test_the_detectors_import_records_errors_and_the_standard_library_only():
    for file in Path(trainvitals.detect.__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("trainvitals"):
                assert node.module in ("trainvitals.records", "trainvitals.errors") or node.module.startswith(
                    "trainvitals.detect"
                ), (
                    file.name,
                    node.module,
                )
