"""Checkpoint directories as people found them after a crash, a copy, another number of ranks: what is said of each."""

import json
import os
import time
from pathlib import Path

import checkpoint_makers as make
import dcp_makers
import large_run_makers as large
import layout_makers
import pytest

from trainvitals.checkpoints import CheckpointWatcher, find, inspect
from trainvitals.checkpoints.resume_choice import choose_all
from trainvitals.clock import ManualClock

SHARDS = "model-{:05d}-of-{:05d}.safetensors"


def huggingface(directory, **options):
    return make.huggingface(directory, 500, **options)


def said(path):
    report = inspect(str(path))
    return str(report.state), " ".join(report.reasons)


class TestFilesOfTwoSaves:
    def test_one_file_of_all_weights_beside_shards_is_what_a_load_takes(self, tmp_path):
        """transformers ``Trainer._load_from_checkpoint`` asks for the one file first."""
        path = huggingface(tmp_path, shards=2)
        (path / "model.safetensors").write_bytes(make.safetensors_bytes({"old": ("F32", (4, 4))}))
        state, reasons = said(path)
        assert state == "complete"
        assert "a load takes model.safetensors" in reasons

    def test_shards_of_an_earlier_save_are_told_and_the_index_decides(self, tmp_path):
        path = huggingface(tmp_path, shards=2)
        for number in (1, 2, 3):
            (path / SHARDS.format(number, 3)).write_bytes(make.safetensors_bytes({f"old{number}": ("F32", (4,))}))
        state, reasons = said(path)
        assert state == "verified"
        assert "rows of 2 and of 3 model shards" in reasons

    def test_shards_without_their_index_are_not_found_by_a_load(self, tmp_path):
        path = huggingface(tmp_path, shards=2)
        (path / "model.safetensors.index.json").unlink()
        assert said(path) == ("incomplete", "model.safetensors.index.json is missing: without it the shards are not found")

    def test_optimizer_files_of_more_ranks_than_share_it_are_of_another_save(self, tmp_path):
        path = layout_makers.write(tmp_path / "global_step500", {**large.deepspeed(500, 4), **large.deepspeed(500, 2)})
        state, reasons = said(path)
        assert state == "complete"
        assert "rank 3, although 2 ranks share" in reasons

    def test_ranks_of_two_world_sizes_are_told(self, tmp_path):
        files = {
            f"actor/model_world_size_{size}_rank_{rank}.pt": make.torch_zip_bytes() for size in (2, 4) for rank in range(size)
        }
        state, reasons = said(layout_makers.write(tmp_path / "global_step_50", files))
        assert state == "verified"
        assert "of 2 and of 4 ranks lie side by side" in reasons


class TestPartsOfLargeRuns:
    @pytest.fixture
    def pipeline(self, tmp_path):
        files = large.deepspeed(500, data=2, model=1, stage=1)
        shapes = [{"1.weight": (4, 4), "1.bias": (4,)}, {"3.weight": (4,), "tied_modules.embed.weight": (4,)}]
        state = {"module": None, "global_steps": 500, "dp_world_size": 2, "mp_world_size": 1, "param_shapes": shapes}
        files["mp_rank_00_model_states.pt"] = make.torch_zip_bytes(state)
        files |= {f"layer_{layer:02d}-model_states.pt": make.torch_zip_bytes() for layer in (1, 3)}
        return layout_makers.write(tmp_path / "global_step500", files)

    def test_a_pipeline_with_gaps_between_its_layers_is_whole(self, pipeline):
        assert said(pipeline) == ("verified", "")

    @pytest.mark.parametrize("lost", [[1], [3], [1, 3]])
    def test_a_layer_with_parameters_must_have_its_file(self, pipeline, lost):
        for layer in lost:
            (pipeline / f"layer_{layer:02d}-model_states.pt").unlink()
        state, reasons = said(pipeline)
        assert state == "incomplete"
        assert f"the files of {len(lost)} layers are missing, the first is layer_{lost[0]:02d}" in reasons

    def test_the_common_state_of_megatron_before_0_19_is_a_file_that_must_be_there(self, tmp_path):
        files = large.megatron_dist()
        config = {
            "sharded_backend": "torch_dist",
            "sharded_backend_version": 1,
            "common_backend": "torch",
            "common_backend_version": 1,
        }
        files["metadata.json"] = json.dumps(config).encode()
        path = layout_makers.write(tmp_path / "iter_0000500", files)
        assert said(path)[0] == "verified"
        (path / "common.pt").unlink()
        state, reasons = said(path)
        assert state == "incomplete"
        assert "common.pt is missing" in reasons

    def test_a_released_checkpoint_is_found_although_its_name_has_no_number(self, tmp_path):
        layout_makers.write(tmp_path / "release", large.megatron_legacy(0))
        (tmp_path / "latest_checkpointed_iteration.txt").write_text("release")
        (path,) = find(str(tmp_path))
        report = inspect(path)
        assert (report.format, str(report.state)) == ("megatron", "verified")
        (choice,) = choose_all([report])
        assert (choice.path, choice.problem) == (path, "")
        assert find(path) == [path]

    def test_a_rank_of_it_that_is_missing_is_seen(self, tmp_path):
        files = {name: content for name, content in large.megatron_legacy(0).items() if not name.startswith("mp_rank_01_001")}
        assert said(layout_makers.write(tmp_path / "release", files))[0] == "incomplete"

    def test_weights_that_zero_3_did_not_gather_prove_nothing(self, tmp_path):
        path = huggingface(tmp_path)
        header = {name: {"dtype": "BF16", "shape": [0], "data_offsets": [0, 0]} for name in ("a", "b")}
        (path / "model.safetensors").write_bytes(make.safetensors_from(header))
        state, reasons = said(path)
        assert state == "complete"
        assert "weights that were not gathered" in reasons

    def test_a_shard_of_an_older_save_with_more_ranks_is_no_fault(self, tmp_path):
        path = dcp_makers.torchtitan(tmp_path)
        shard = path / "__3_0.distcp"
        shard.write_bytes(dcp_makers.entry_bytes(3))
        before = (path / ".metadata").stat().st_mtime - 500
        os.utime(shard, (before, before))
        state, reasons = said(path)
        assert state == "verified"
        assert "left over by another save" in reasons


class TestWhatLiesThereInstead:
    @pytest.mark.parametrize(
        ("content", "told"),
        [
            (b"version https://git-lfs.github.com/spec/v1\noid sha256:0000\nsize 1234567\n", "git lfs pull"),
            (b"<!DOCTYPE html><html><body>403 Forbidden</body></html>", "copy the file again"),
            (b'<?xml version="1.0"?><Error><Code>AccessDenied</Code></Error>', "copy the file again"),
            (bytes(4096), "begins with zeros"),
        ],
    )
    @pytest.mark.parametrize("name", ["model.safetensors", "optimizer.pt"])
    def test_it_is_said_in_words(self, tmp_path, name, content, told):
        path = huggingface(tmp_path)
        (path / name).write_bytes(content)
        state, reasons = said(path)
        assert state == "corrupt"
        assert name in reasons
        assert told in reasons

    def test_an_empty_directory_with_a_checkpoints_name_is_incomplete(self, tmp_path):
        (tmp_path / "global_step500").mkdir()
        assert said(tmp_path / "global_step500") == ("incomplete", "holds no files")


class TestWhatCannotBeRead:
    """Root squash, rights, ESTALE: nothing is known, so nothing is missing."""

    @pytest.fixture
    def refused(self, monkeypatch):
        real = os.scandir

        def refuse(error, ending):
            def scandir(path):
                if str(path).endswith(ending):
                    raise error
                return real(path)

            monkeypatch.setattr(os, "scandir", scandir)

        return refuse

    @pytest.mark.parametrize("error", [PermissionError(13, "Permission denied"), OSError(116, "Stale file handle")])
    def test_a_directory_inside_a_checkpoint_makes_it_neither_incomplete_nor_verified(self, tmp_path, refused, error):
        path = layout_makers.write(tmp_path / "checkpoint-500", large.huggingface_deepspeed())
        assert said(path)[0] == "verified"
        refused(error, "global_step500")
        state, reasons = said(path)
        assert state == "complete"
        assert error.strerror in reasons

    def test_ranks_of_megatron_that_nobody_may_list_are_not_called_missing(self, tmp_path, refused):
        path = layout_makers.write(tmp_path / "iter_0000500", large.megatron_legacy())
        refused(PermissionError(13, "Permission denied"), "mp_rank_01_001")
        state, reasons = said(path)
        assert state == "complete"
        assert "not all could be read" in reasons


class TestClocksLinksAndNames:
    def test_a_time_in_the_future_does_not_make_an_old_checkpoint_the_newest(self, tmp_path):
        """A node whose clock is a day ahead: what another node saves now is still a save, no deletion."""
        clock = ManualClock()
        now_s = clock.time_ns() / 1e9
        make.huggingface(tmp_path, 100, modified_s=now_s + 86_400)
        make.huggingface(tmp_path, 200, modified_s=now_s - 600)
        watcher = CheckpointWatcher([str(tmp_path)], clock)
        watcher.scan()
        parts = make.huggingface_parts(300)
        del parts["trainer_state.json"]
        make.write_parts(tmp_path / "checkpoint-300", parts, now_s)
        clock.advance(1.0)
        watcher.scan()
        assert {report.step: str(report.state) for report in watcher.reports}[300] == "writing"

    def test_a_last_that_links_to_itself_is_told(self, tmp_path):
        """Lightning-AI/pytorch-lightning issue 21110."""
        layout_makers.write(tmp_path, layout_makers.lightning(500))
        (tmp_path / "last.ckpt").symlink_to("last.ckpt")
        (choice,) = choose_all(inspect(path) for path in find(str(tmp_path)))
        assert "last.ckpt, which is not there, although step 500 is complete here" in choice.problem

    @pytest.mark.parametrize(
        ("name", "step"), [("020000", 20_000), ("1", None), ("20260105", None), ("checkpoint_2_500.pt", 500), ("checkpoint_5", 5)]
    )
    def test_the_step_of_a_number_alone_and_of_fairseqs_names(self, name, step):
        from trainvitals.checkpoints.parts import step_from_name

        assert step_from_name(name) == step

    def test_of_more_checkpoints_than_are_kept_the_highest_steps_are(self, tmp_path, monkeypatch):
        monkeypatch.setattr("trainvitals.checkpoints.discovery.MAX_CHECKPOINTS", 5)
        for step in range(100, 1300, 100):
            (tmp_path / f"checkpoint-{step}").mkdir()
        assert [Path(path).name for path in find(str(tmp_path))] == [f"checkpoint-{step}" for step in range(800, 1300, 100)]

    def test_steps_are_ordered_as_numbers(self, tmp_path):
        for step in (200, 1000):
            make.huggingface(tmp_path, step, modified_s=time.time() - step)
        reports = [inspect(path) for path in find(str(tmp_path))]
        assert [report.step for report in reports] == [200, 1000]
        (choice,) = choose_all(reports)
        assert choice.step == 1000


class TestOthersUnderKnownNames:
    def accelerate(self, **files):
        tensor = make.safetensors_bytes({"w": ("F32", (4,))})
        state = make.torch_zip_bytes(storages=())
        parts = {
            "optimizer.bin": make.torch_zip_bytes(),
            "scheduler.bin": state,
            "random_states_0.pkl": make.torch_zip_bytes(storages=(3,)),
        }
        return {**dict.fromkeys(files["weights"], tensor), **parts, "scaler.pt": state}

    @pytest.mark.parametrize(
        "weights",
        [["unet/diffusion_pytorch_model.safetensors"], ["pytorch_lora_weights.safetensors"], ["model.safetensors"]],
    )
    def test_what_accelerate_saves_under_a_name_of_the_trainers_is_whole(self, tmp_path, weights):
        """The training scripts of huggingface/diffusers call the directories of ``save_state`` checkpoint-N."""
        path = layout_makers.write(tmp_path / "checkpoint-500", self.accelerate(weights=weights))
        report = inspect(str(path))
        assert (report.format, report.step, str(report.state), report.has_optimizer) == ("accelerate", 500, "verified", True)

    def test_and_damage_in_it_is_seen(self, tmp_path):
        weights = "unet/diffusion_pytorch_model.safetensors"
        path = layout_makers.write(tmp_path / "checkpoint-500", self.accelerate(weights=[weights]))
        (path / weights).write_bytes((path / weights).read_bytes()[:-1])
        state, reasons = said(path)
        assert (state, weights in reasons) == ("corrupt", True)
        (path / weights).unlink()
        assert said(path) == ("incomplete", "no model weights")

    def test_a_document_of_a_loop_beside_shards_is_not_megatrons(self, tmp_path):
        """KempnerInstitute/KempnerForge issue 102: metadata.json of its own beside a distributed checkpoint."""
        files = dcp_makers.parts(dcp_makers.TORCHTITAN, 2, dcp_makers.TORCHTITAN_OBJECTS)
        path = layout_makers.write(tmp_path / "step_100", {**files, "metadata.json": b'{"step": 100, "tokens": 5}'})
        report = inspect(str(path))
        assert (report.format, report.step, str(report.state)) == ("dcp", 100, "verified")
        (path / "__1_0.distcp").unlink()
        assert said(path)[0] == "incomplete"

    def test_the_trainer_loads_what_latest_in_its_checkpoint_names(self, tmp_path):
        """transformers ``deepspeed_load_checkpoint``; a copy that lost the directory, or two saves in one."""
        path = layout_makers.write(tmp_path / "checkpoint-500", large.huggingface_deepspeed())
        assert said(path)[0] == "verified"
        (path / "latest").write_text("global_step400\n")
        state, reasons = said(path)
        assert (state, "names global_step400, which is not in it" in reasons) == ("incomplete", True)
        (path / "latest").unlink()
        state, reasons = said(path)
        assert (state, "latest is missing" in reasons) == ("complete", True)

    @pytest.mark.parametrize(
        "name", ["checkpoint_3_500-shard0.pt", "checkpoint_3_500-model_part-0-shard7.pt", "model_500.pth.tar"]
    )
    def test_files_of_others_are_found_with_their_step(self, tmp_path, name):
        (tmp_path / name).write_bytes(make.torch_zip_bytes())
        (path,) = find(str(tmp_path))
        assert (inspect(path).step, str(inspect(path).state)) == (500, "verified")

    def test_the_number_of_lightnings_saves_before_the_end_of_a_job_is_no_step(self, tmp_path):
        (tmp_path / "hpc_ckpt_2.ckpt").write_bytes(layout_makers.lightning_file(600)[:200])
        report = inspect(str(tmp_path / "hpc_ckpt_2.ckpt"))
        assert (str(report.state), report.step) == ("corrupt", None)

    def test_the_pointer_of_megatron_bridge_is_no_checkpoint(self, tmp_path):
        layout_makers.write(tmp_path / "iter_0000500", large.megatron_dist())
        (tmp_path / "latest_train_state.pt").write_bytes(make.torch_zip_bytes())
        assert [Path(path).name for path in find(str(tmp_path))] == ["iter_0000500"]

    def test_a_compressed_file_is_called_so(self, tmp_path):
        (tmp_path / "model_500.pt").write_bytes(b"\x1f\x8b\x08" + bytes(100))
        assert "compressed with gzip" in said(tmp_path / "model_500.pt")[1]

    def test_actor_and_critic_of_openrlhf_are_looked_into(self, tmp_path):
        for part in ("_actor", "_critic"):
            layout_makers.write(tmp_path / part / "global_step50", large.deepspeed(50))
        assert [os.path.relpath(path, tmp_path) for path in find(str(tmp_path))] == [
            "_actor/global_step50",
            "_critic/global_step50",
        ]


class TestRunsBelowOneDirectory:
    @pytest.mark.parametrize(
        ("names", "expected"),
        [
            (["a/model_100.pt", "a/model_200.pt", "b/model_100.pt"], ["a/model_100.pt", "a/model_200.pt", "b/model_100.pt"]),
            (["a/best.pt", "a/last.pt"], ["a/best.pt", "a/last.pt"]),
            (["a/epoch_1.pt", "a/epoch_2.pt"], ["a/epoch_1.pt", "a/epoch_2.pt"]),
            (["1/model_100.pt", "1/model_200.pt"], ["1/model_100.pt", "1/model_200.pt"]),
            (["a/ep1-ba5-rank0.pt", "a/ep1-ba5-rank1.pt", "a/ep2-ba9-rank0.pt"], ["a/ep1-ba5-rank0.pt", "a/ep2-ba9-rank0.pt"]),
            (["a/checkpoint-5/trainer_state.json", "a/trainer_state.json", "a/model.safetensors"], ["a/checkpoint-5", "a/model.safetensors"]),
            # These are one checkpoint each, whatever their files are called.
            (["a/model.pt", "a/optimizer.pt", "a/scheduler.pt"], ["a"]),
            (["a/consolidated.00.pth", "a/consolidated.01.pth"], ["a"]),
            (["a/rank_0.pt", "a/rank_1.pt"], ["a"]),
            (["a/model_world_size_2_rank_0.pt", "a/model_world_size_2_rank_1.pt"], ["a"]),
            (["a/model_0.pt", "a/model_1.pt"], ["a"]),
            (["a/z-00001-of-00002.bin", "a/z-00002-of-00002.bin"], ["a"]),
            (["a/adapter_model.safetensors", "a/adapter_config.json"], ["a"]),
            (["step_500/model_500.pt", "step_500/optim_500.pt"], ["step_500"]),
            (["500/model_500.pt"], ["500"]),
        ],
    )  # fmt: skip
    def test_single_files_stand_each_for_itself_and_parts_stay_together(self, tmp_path, names, expected):
        for name in names:
            layout_makers.write(tmp_path, {name: b"x"})
        assert sorted(os.path.relpath(path, tmp_path) for path in find(str(tmp_path))) == sorted(expected)
