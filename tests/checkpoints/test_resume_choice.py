"""What each trainer would resume from, and the sentence when that is dangerous."""

import os
from pathlib import Path

import checkpoint_makers
import dcp_makers
import layout_makers as make
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trainvitals.__main__ import main
from trainvitals.checkpoints import find, inspect
from trainvitals.checkpoints.resume_choice import choose, choose_all, choose_from
from trainvitals.checkpoints.resume_pointers import Seen
from trainvitals.records import CheckpointReport, CheckpointState


def chosen(directory, level="structure"):
    """The choice from real inspections of what is there."""
    return choose(str(directory), [inspect(path, level) for path in find(str(directory))])


def report(directory, name, step, state="verified", modified_at_ns=None, format_="megatron_dist", reasons=()):
    return CheckpointReport(
        os.path.join(str(directory), name),
        step,
        format_,
        CheckpointState(state),
        None,
        True,
        1,
        1,
        reasons,
        modified_at_ns or step,
    )


def name_of(choice):
    return choice.path and Path(choice.path).name


# Pointer files


def test_a_pointer_behind_the_newest_complete_is_told_with_both_steps(tmp_path):
    (tmp_path / "latest_checkpointed_iteration.txt").write_text("59999\n")
    for step in (59_999, 69_999):
        (tmp_path / f"iter_{step:07d}").mkdir()
    reports = [report(tmp_path, f"iter_{step:07d}", step) for step in (59_999, 69_999)]
    choice = choose(str(tmp_path), reports)
    assert (name_of(choice), choice.step) == ("iter_0059999", 59_999)
    assert choice.problem == (
        "latest_checkpointed_iteration.txt says step 59,999, newest complete is step 69,999: a restart would repeat 10,000 steps."
    )


def test_a_run_that_went_back_has_higher_steps_that_are_older_and_no_problem(tmp_path):
    (tmp_path / "latest_checkpointed_iteration.txt").write_text("500")
    (tmp_path / "iter_0000500").mkdir()
    reports = [
        report(tmp_path, "iter_0000500", 500, modified_at_ns=2_000),
        report(tmp_path, "iter_0000900", 900, modified_at_ns=1_000),
    ]
    assert choose(str(tmp_path), reports).problem == ""


def test_no_pointer_beside_global_steps_would_begin_at_step_zero(tmp_path):
    reports = []
    for step in (50, 100):
        (tmp_path / f"global_step_{step}").mkdir()
        reports.append(report(tmp_path, f"global_step_{step}", step, "complete", format_="dcp"))
    choice = choose(str(tmp_path), reports)
    assert (choice.path, choice.step) == (None, None)
    assert choice.problem == (
        "There is no latest_checkpointed_iteration.txt, so a restart would begin at step 0, although step 100 is complete here."
    )
    (tmp_path / "latest_checkpointed_iteration.txt").write_text("100")
    assert name_of(choose(str(tmp_path), reports)) == "global_step_100"


def test_no_pointer_beside_iterations_of_megatron_would_begin_at_step_zero(tmp_path):
    (tmp_path / "iter_0000100").mkdir()
    assert "begin at step 0" in choose(str(tmp_path), []).problem


@pytest.mark.parametrize(
    ("text", "told"),
    [("", "is empty"), ("\n", "is empty"), ("abc", "'abc'"), ("5\n6", "5"), ("../../etc/passwd", "etc"), ("\x1b[31m5", "x1b"),
     ("٣", "no iteration"), ("-5", "-5"), ("9" * 5000, "999")],
)  # fmt: skip
def test_a_tracker_that_holds_no_iteration_stops_the_loader(tmp_path, text, told):
    (tmp_path / "latest_checkpointed_iteration.txt").write_text(text)
    (tmp_path / "iter_0000100").mkdir()
    choice = choose(str(tmp_path), [report(tmp_path, "iter_0000100", 100)])
    assert choice.path is None
    assert "loader stops" in choice.problem
    assert told in choice.problem
    assert choice.problem.isprintable()


def test_a_released_checkpoint_has_no_step(tmp_path):
    (tmp_path / "latest_checkpointed_iteration.txt").write_text("release")
    (tmp_path / "release").mkdir()
    choice = choose(str(tmp_path), [])
    assert (name_of(choice), choice.step, choice.problem) == ("release", None, "")


def test_a_pointer_at_a_directory_that_is_not_there_is_told(tmp_path):
    (tmp_path / "latest_checkpointed_iteration.txt").write_text("200")
    (tmp_path / "iter_0000100").mkdir()
    choice = choose(str(tmp_path), [report(tmp_path, "iter_0000100", 100)])
    assert choice.problem == (
        "latest_checkpointed_iteration.txt names iter_0000200, which is not there, although step 100 is complete here."
    )


def test_a_link_to_a_save_that_did_not_finish_is_red(tmp_path):
    """The pointer moved before the flush had ended (KempnerInstitute/KempnerForge issue 102)."""
    make.write(tmp_path / "step_100", dcp_makers.parts({"w": 9}), modified_s=1_000)
    parts = dcp_makers.parts({"w": 9})
    make.write(tmp_path / "step_200", {"__0_0.distcp": parts["__0_0.distcp"][:50]}, modified_s=2_000)
    (tmp_path / "latest").symlink_to("step_200")
    choice = chosen(tmp_path)
    assert (name_of(choice), choice.step, choice.how) == ("step_200", 200, "latest (a link)")
    assert choice.problem.startswith("latest (a link) says step 200, which is incomplete (")
    assert choice.problem.endswith("newest verified is step 100.")


@pytest.mark.parametrize("state", ["writing", "staged", "incomplete", "corrupt", "deleting", "deleted"])
def test_a_pointer_at_anything_but_a_whole_checkpoint_is_a_problem(tmp_path, state):
    (tmp_path / "latest").write_text("global_step200")
    for step in (100, 200):
        (tmp_path / f"global_step{step}").mkdir()
    reports = [
        report(tmp_path, "global_step100", 100, format_="deepspeed"),
        report(tmp_path, "global_step200", 200, state, format_="deepspeed", reasons=("a shard is missing",)),
    ]
    problem = choose(str(tmp_path), reports).problem
    assert "step 200" in problem
    assert "a shard is missing" in problem
    assert problem.endswith("newest verified is step 100.")


def test_a_pointer_at_an_unverified_one_is_a_problem_when_a_verified_one_is_there(tmp_path):
    (tmp_path / "latest").write_text("global_step200")
    (tmp_path / "global_step200").mkdir()
    complete = report(tmp_path, "global_step200", 200, "complete", format_="deepspeed")
    assert choose(str(tmp_path), [complete]).problem == ""
    verified = report(tmp_path, "global_step100", 100, format_="deepspeed")
    assert "not verified" in choose(str(tmp_path), [complete, verified]).problem


def test_deepspeed_without_its_pointer_begins_at_step_zero(tmp_path):
    (tmp_path / "global_step200").mkdir()
    assert "no latest" in choose(str(tmp_path), [report(tmp_path, "global_step200", 200, format_="deepspeed")]).problem


@pytest.mark.parametrize(
    "text", ["../other", "/etc/passwd", "/other/run/global_step5", "/etc/passwd/..", "a/b", "x\ny", ".", "..", "a" * 300]
)
def test_a_pointer_that_names_no_name_is_never_followed(tmp_path, text):
    (tmp_path / "latest").write_text(text)
    choice = choose(str(tmp_path), [])
    assert choice.path is None
    assert "no checkpoint in this directory" in choice.problem
    assert choice.problem.isprintable()


def test_a_pointer_that_is_no_file_is_told_and_never_blocks(tmp_path):
    (tmp_path / "latest_checkpointed_iteration.txt").mkdir()
    os.mkfifo(tmp_path / "latest")
    (tmp_path / "iter_0000100").mkdir()
    assert "begin at step 0" in choose(str(tmp_path), []).problem


# Names


def test_hugging_face_takes_the_highest_number_even_when_it_is_incomplete(tmp_path):
    checkpoint_makers.huggingface(tmp_path, 500)
    make.write(tmp_path / "checkpoint-1000", {"config.json": b"{}"})
    choice = chosen(tmp_path)
    assert (name_of(choice), choice.step, choice.how) == ("checkpoint-1000", 1000, "highest checkpoint-N")
    assert "A restart would load checkpoint-1000, which is incomplete" in choice.problem
    assert "newest verified is step 500" in choice.problem


def test_torchtitan_takes_the_highest_that_holds_metadata(tmp_path):
    dcp_makers.torchtitan(tmp_path, 500)
    make.write(tmp_path / "step-1000", {"__0_0.distcp": b"x"})
    choice = chosen(tmp_path)
    assert (name_of(choice), choice.problem) == ("step-500", "")
    for file in (tmp_path / "step-500").glob(".metadata"):
        file.unlink()
    assert "begin at step 0" in chosen(tmp_path).problem


def test_directories_of_others_that_are_named_alike_are_not_taken_for_torchtitans(tmp_path):
    make.write(tmp_path / "step-500", {"lit_model.pth": checkpoint_makers.torch_zip_bytes()})
    assert chosen(tmp_path) is None


def test_torchtitan_takes_one_whose_shards_are_gone(tmp_path):
    dcp_makers.torchtitan(tmp_path, 500, modified_s=1_000)
    (dcp_makers.torchtitan(tmp_path, 1000, modified_s=2_000) / "__1_0.distcp").unlink()
    choice = chosen(tmp_path)
    assert name_of(choice) == "step-1000"
    assert "incomplete" in choice.problem


def test_lightning_takes_last_or_the_newest_of_several(tmp_path):
    make.write(tmp_path, make.lightning(500), modified_s=1_000)
    assert name_of(chosen(tmp_path)) == "epoch=1-step=500.ckpt"
    (tmp_path / "last.ckpt").symlink_to("epoch=1-step=500.ckpt")
    choice = chosen(tmp_path)
    assert (name_of(choice), choice.how, choice.step) == ("epoch=1-step=500.ckpt", 'last.ckpt (ckpt_path="last")', 500)
    make.write(tmp_path, {"last-v1.ckpt": make.lightning_file(900)}, modified_s=3_000)
    assert (name_of(chosen(tmp_path)), chosen(tmp_path).step) == ("last-v1.ckpt", 900)
    make.write(tmp_path, {"hpc_ckpt_2.ckpt": make.lightning_file(950)}, modified_s=4_000)
    assert (name_of(chosen(tmp_path)), chosen(tmp_path).problem) == ("hpc_ckpt_2.ckpt", "")


def test_a_last_that_fell_behind_is_told(tmp_path):
    make.write(tmp_path, {"last.ckpt": make.lightning_file(500)}, modified_s=1_000)
    make.write(tmp_path, make.lightning(900), modified_s=2_000)
    assert "newest complete is step 900" in chosen(tmp_path).problem


def test_nemo_takes_last_unless_it_is_marked_unfinished(tmp_path):
    make.write(tmp_path, make.nemo(500))
    name = next(iter(make.nemo(500)))
    assert (name_of(chosen(tmp_path)), chosen(tmp_path).problem) == (name, "")
    (tmp_path / f"{name.removesuffix('.ckpt')}-unfinished").touch()
    choice = chosen(tmp_path)
    assert choice.path is None
    assert "marked unfinished: NeMo would begin at step 0" in choice.problem


def test_nemo_without_a_last_would_begin_at_step_zero(tmp_path):
    """The silent restart from the beginning (NVIDIA-NeMo/Speech pull request 10228)."""
    make.write(tmp_path / "gpt--val_loss=2.51-step=500-consumed_samples=4000.0", make.nemo2())
    choice = chosen(tmp_path)
    assert choice.path is None
    assert choice.problem == "None is named -last: NeMo would begin at step 0 or stop, although step 500 is complete here."


def test_orbax_takes_the_highest_that_was_renamed(tmp_path):
    make.write(tmp_path / "500", make.orbax())
    make.write(tmp_path / "1000.orbax-checkpoint-tmp", make.orbax())
    assert (name_of(chosen(tmp_path)), chosen(tmp_path).problem) == ("500", "")


def test_olmo_core_takes_the_highest_that_has_all_three_marks(tmp_path):
    make.write(tmp_path / "step500", make.olmo_core())
    make.write(
        tmp_path / "step1000", {name: content for name, content in make.olmo_core(1000).items() if name != ".metadata.json"}
    )
    assert (name_of(chosen(tmp_path)), chosen(tmp_path).problem) == ("step500", "")
    (tmp_path / "latest").symlink_to(tmp_path / "step1000")
    assert name_of(chosen(tmp_path)) == "step1000"
    assert "incomplete" in chosen(tmp_path).problem


def test_composer_follows_its_link_and_starts_anew_without_it(tmp_path):
    make.write(tmp_path, make.composer(500))
    assert "autoresume would begin at step 0" in chosen(tmp_path).problem
    (tmp_path / "latest-rank0.pt").symlink_to("ep1-ba500-rank0.pt")
    assert (name_of(chosen(tmp_path)), chosen(tmp_path).step, chosen(tmp_path).problem) == ("ep1-ba500-rank0.pt", 500, "")
    (tmp_path / "latest-rank0.pt").unlink()
    (tmp_path / "latest-rank0.pt.symlink").write_text("run/checkpoints/ep1-ba500-rank0.pt")
    assert name_of(chosen(tmp_path)) == "ep1-ba500-rank0.pt"


def test_nanogpt_and_accelerate_and_llm_c(tmp_path):
    make.write(tmp_path / "a", make.nanogpt(70))
    assert (name_of(chosen(tmp_path / "a")), chosen(tmp_path / "a").step) == ("ckpt.pt", 70)
    for number in (2, 10):
        make.write(tmp_path / "b" / f"checkpoint_{number}", {"random_states_0.pkl": b"x"})
    assert name_of(chosen(tmp_path / "b")) == "checkpoint_10"
    make.write(tmp_path / "c", make.llm_c(500))
    make.write(tmp_path / "c", {name: content for name, content in make.llm_c(900).items() if "DONE" not in name})
    assert (name_of(chosen(tmp_path / "c")), chosen(tmp_path / "c").problem) == ("model_00000500.bin", "")
    (tmp_path / "c" / "DONE_00000900").touch()
    (tmp_path / "c" / "model_00000900.bin").unlink()
    assert "model_00000900.bin, which is not there" in chosen(tmp_path / "c").problem


@pytest.mark.parametrize("sample", ["safetensors", "torch"])
def test_nothing_is_said_of_files_whose_trainer_nobody_knows(tmp_path, sample):
    make.SAMPLES[sample][2](tmp_path)
    assert chosen(tmp_path) is None
    assert choose(str(tmp_path / "nowhere"), []) is None


def test_each_directory_with_checkpoints_has_its_own_choice(tmp_path):
    checkpoint_makers.huggingface(tmp_path / "a", 500)
    make.write(tmp_path / "b" / "checkpoints", make.lightning())
    reports = [inspect(path) for place in ("a", "b") for path in find(str(tmp_path / place))]
    assert [name_of(choice) for choice in choose_all(reports)] == ["checkpoint-500", "epoch=1-step=500.ckpt"]


def test_a_directory_given_in_another_way_is_the_same(tmp_path, monkeypatch):
    checkpoint_makers.huggingface(tmp_path, 500)
    monkeypatch.chdir(tmp_path)
    for way in (".", "./", str(tmp_path) + "/"):
        assert chosen(way).step == 500, way


@settings(max_examples=300, deadline=None)
@given(
    st.lists(
        st.sampled_from(["iter_0000100", "step-5", "checkpoint-7", "global_step9", "last.ckpt", "step5", "DONE_00000005", "x"])
    ),
    st.dictionaries(
        st.sampled_from(["latest", "latest_checkpointed_iteration.txt", "latest-rank0.pt.symlink"]), st.text(max_size=30)
    ),
    st.dictionaries(st.sampled_from(["latest", "latest-rank0.pt", "last.ckpt"]), st.text(max_size=30)),
    st.sampled_from(["dcp", "deepspeed", "orbax", "nemo", "lightning", "composer", "olmo", "llm_c", "deepspeed_universal"]),
    st.sampled_from([str(state) for state in CheckpointState]),
)
def test_whatever_is_there_a_choice_never_raises_and_stays_inside_its_directory(names, texts, links, format_, state):
    seen = Seen("/run", frozenset(names), frozenset(names), links, texts)
    choice = choose_from(seen, [report("/run", name, 5, state, format_=format_, reasons=("why\nnot",)) for name in names])
    if choice is not None and choice.path is not None:
        assert os.path.dirname(choice.path) == "/run"
        assert "\n" not in choice.path


def test_the_command_says_under_its_table_what_a_restart_would_load(tmp_path, capsys):
    checkpoint_makers.huggingface(tmp_path, 500)
    make.write(tmp_path / "checkpoint-1000", {"config.json": b"{}"})
    assert main(["checkpoint", "list", str(tmp_path)]) == 1
    out = capsys.readouterr().out
    assert f"A restart would load: {tmp_path}/checkpoint-1000 (by highest checkpoint-N)\n" in out
    assert "newest complete is step 500" in out
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / "latest_checkpointed_iteration.txt").write_text("7")
    assert main(["checkpoint", "list", str(tmp_path / "empty")]) == 0
    assert "names iter_0000007, which is not there" in capsys.readouterr().out


def test_many_steps_are_asked_for_no_more_than_the_highest_needs(tmp_path, monkeypatch):
    for step in range(300):
        (tmp_path / f"step-{step}").mkdir()
    (tmp_path / "step-290" / ".metadata").write_bytes(b"x")
    asked = []
    monkeypatch.setattr(
        "trainvitals.checkpoints.resume_pointers._is_file", lambda path: asked.append(path) or os.path.exists(path)
    )
    assert name_of(choose(str(tmp_path), [])) == "step-290"
    assert len(asked) == 50
