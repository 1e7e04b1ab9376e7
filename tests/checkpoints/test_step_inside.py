"""The step that stands inside a checkpoint and disagrees with its name: a renamed one, or shards of another save under an old name."""

import pickle

import checkpoint_makers as make
import dcp_makers
import layout_makers
import pytest

from trainvitals.checkpoints import inspect


def shards_with(tmp_path, name, key, value, *, as_tensor=False):
    """A distributed checkpoint in which ``key`` is a number, as an object or as a tensor of one int32."""
    if as_tensor:
        files = dcp_makers.parts({key: 1, "model.weight": 2}, ranks=1)
        files[".metadata"] = files[".metadata"].replace(b"\x8c\x07float32", b"\x8c\x05int32")
        shard, entry = files["__0_0.distcp"], dcp_makers.entry_bytes(1)
        assert shard.startswith(entry)
        files["__0_0.distcp"] = entry.replace(bytes(range(4)), value.to_bytes(4, "little", signed=True)) + shard[len(entry) :]
    else:
        entry = make.torch_zip_bytes(pickled=pickle.dumps(value, 2), storages=())
        before = dcp_makers.entry_bytes
        try:
            dcp_makers.entry_bytes = lambda items, name="": entry if name == "object" else before(items)
            files = dcp_makers.parts({"model.weight": 2}, ranks=2, objects=(key,))
        finally:
            dcp_makers.entry_bytes = before
    return layout_makers.write(tmp_path / name, files)


def said(path):
    report = inspect(str(path))
    return str(report.state), " ".join(report.reasons)


@pytest.mark.parametrize("as_tensor", [True, False])
class TestTorchtitan:
    def test_the_same_step_is_verified(self, tmp_path, as_tensor):
        assert said(shards_with(tmp_path, "step-500", "train_state.step", 500, as_tensor=as_tensor)) == ("verified", "")

    def test_another_step_is_never_verified(self, tmp_path, as_tensor):
        state, reasons = said(shards_with(tmp_path, "step-500", "train_state.step", 400, as_tensor=as_tensor))
        assert state == "complete"
        assert "train_state.step in it is 400, its name says 500" in reasons

    def test_a_name_without_a_step_contradicts_nothing(self, tmp_path, as_tensor):
        assert said(shards_with(tmp_path, "final", "train_state.step", 400, as_tensor=as_tensor)) == ("verified", "")

    def test_an_impossible_number_tells_nothing(self, tmp_path, as_tensor):
        assert said(shards_with(tmp_path, "step-500", "train_state.step", -5, as_tensor=as_tensor)) == ("verified", "")


@pytest.mark.parametrize("value", ["500", {"step": 1}, [500], 2**70, None, 5.0, True])
def test_what_is_no_number_of_steps_tells_nothing(tmp_path, value):
    assert said(shards_with(tmp_path, "step-500", "train_state.step", value))[0] == "verified"


def test_a_key_of_another_trainer_is_not_taken_for_a_step(tmp_path):
    assert said(shards_with(tmp_path, "step-500", "evaluator.step", 400))[0] == "verified"


class TestComposer:
    @pytest.mark.parametrize("wrap", [lambda clock: {"Timestamp": clock}, lambda clock: clock])
    @pytest.mark.parametrize(("batch", "expected"), [(500, "verified"), (400, "complete")])
    def test_of_one_file(self, tmp_path, wrap, batch, expected):
        state = {"state": {"model": {"w": 1}, "timestamp": wrap({"epoch": 1, "batch": batch})}}
        (tmp_path / "ep1-ba500-rank0.pt").write_bytes(make.torch_zip_bytes(state))
        state, reasons = said(tmp_path / "ep1-ba500-rank0.pt")
        assert state == expected
        assert ("is of batch 400, its name says 500" in reasons) is (expected == "complete")

    def test_of_one_rank_that_saved_another_time(self, tmp_path):
        files = {**layout_makers.composer(500, 3), "ep1-ba500-rank1.pt": layout_makers.composer(400, 2)["ep1-ba400-rank1.pt"]}
        layout_makers.write(tmp_path, files)
        state, reasons = said(tmp_path / "ep1-ba500-rank0.pt")
        assert (state, "rank1.pt is of batch 400" in reasons) == ("complete", True)

    @pytest.mark.parametrize(("batch", "expected"), [(500, "verified"), (400, "complete")])
    def test_of_a_directory_of_shards(self, tmp_path, batch, expected):
        path = shards_with(tmp_path, "ep1-ba500", "state.timestamp.Timestamp.batch", batch)
        assert said(path)[0] == expected


class TestMegatron:
    """Megatron-Core from 0.19 on has no common.pt: arguments and iteration are an object in the distributed checkpoint."""

    def saved(self, tmp_path, common):
        path = shards_with(tmp_path, "iter_0000500", "common_state/shard_0_1", common)
        (path / "metadata.json").write_text('{"sharded_backend": "torch_dist", "sharded_backend_version": 1}')
        return path

    def test_its_iteration_and_sizes_are_read(self, tmp_path):
        arguments = {"tensor_model_parallel_size": 4, "world_size": 16, "consumed_train_samples": 9}
        report = inspect(
            str(self.saved(tmp_path, [{"iteration": 500, "args": arguments, "opt_param_scheduler": {"num_steps": 1}}]))
        )
        assert (str(report.state), report.step, report.world_size, report.parallel) == ("verified", 500, 16, {"tp": 4})
        assert (report.has_scheduler, report.has_data_position) == (True, True)

    def test_another_iteration_is_damage(self, tmp_path):
        state, reasons = said(self.saved(tmp_path, [{"iteration": 400}]))
        assert state == "corrupt"
        assert "its common state is of iteration 400, the directory is named for iteration 500" in reasons

    @pytest.mark.parametrize("common", [[], [7], {"iteration": 400}, "x", [[1]], [{"iteration": "400"}]])
    def test_what_is_no_common_state_tells_nothing(self, tmp_path, common):
        assert said(self.saved(tmp_path, common))[0] == "verified"
