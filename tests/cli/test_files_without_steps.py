"""A file without a training step is told from one without trouble, and what it holds instead is named."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from trainvitals.__main__ import main
from trainvitals.cli.contents import names_instead


def test_detect_refuses_a_log_that_tells_of_overflows_only(tmp_path: Path, capsys):
    file = tmp_path / "bar.out"
    file.write_text("[deepspeed] OVERFLOW! Rank 0 Skipping step. Attempted loss scale: 65536, reducing to 32768\n" * 2)
    assert main(["detect", str(file)]) == 2
    assert "holds no training step" in capsys.readouterr().err


@pytest.mark.parametrize("separator", [",", ";", "\t"])
def test_the_columns_of_a_table_without_a_step_are_named(tmp_path: Path, capsys, separator: str):
    file = tmp_path / "c.csv"
    file.write_text(
        "# made by hand\n" + separator.join(["timestamp", "batch", "loss", "lr"]) + "\n" + separator.join("1234") + "\n"
    )
    assert main(["detect", str(file)]) == 2
    assert "Its columns are timestamp, batch, loss, lr: none of them is known for the step" in capsys.readouterr().err


def test_the_keys_of_json_lines_are_named_also_in_a_gzip_file(tmp_path: Path):
    file = tmp_path / "m.jsonl.gz"
    file.write_bytes(gzip.compress(b'{"batch": 1, "xent\\u001b": 2.5}\n'))
    assert (
        names_instead(str(file))
        == "Its keys are batch, xent\N{REPLACEMENT CHARACTER}; a step's line needs step and a metric such as loss."
    )


@pytest.mark.parametrize(
    "content", [b"", b"hello\nworld\n", b"hello, world. Two sentences, no table!\n", b"{broken\n", b"\x1f\x8b\x08\x00no"]
)
def test_prose_and_what_is_broken_have_no_names(tmp_path: Path, content: bytes):
    file = tmp_path / "x"
    file.write_bytes(content)
    assert names_instead(str(file)) == ""
    assert names_instead(str(tmp_path / "none")) == "" and names_instead("-") == ""


def test_the_tags_of_event_files_are_named(tmp_path: Path, capsys):
    writer = pytest.importorskip("tensorboard.summary", reason="needs tensorboard").Writer(str(tmp_path / "tb"))
    writer.add_scalar("Xent", 2.5, 1)
    writer.add_scalar("speed/words", 100.0, 1)
    writer.close()
    names_instead(str(tmp_path / "tb"))
    assert (
        names_instead(str(tmp_path / "tb"))
        == "Its tags are Xent, speed/words; none is known for a loss. Write one as train/loss."
    )


def test_a_format_that_is_nearly_a_name_is_answered_with_the_name(tmp_path: Path, capsys):
    (tmp_path / "x.log").write_text("x\n")
    assert main(["parse", str(tmp_path / "x.log"), "--format", "megatorn"]) == 2
    assert "'megatorn' is no known log format; did you mean megatron?" in capsys.readouterr().err
