import io
import json
import os
import pickle
import struct
import subprocess
import sys
from pathlib import Path

import checkpoint_makers as make
import content_makers as made
import dcp_makers as dcp
import numpy as np
import pytest

from trainvitals.checkpoints import load, torch_file
from trainvitals.checkpoints.files import listing
from trainvitals.checkpoints.findings import Findings
from trainvitals.checkpoints.load_tensors import NotLoadable, of_torch
from trainvitals.checkpoints.load_values import Tensor, count, judge
from trainvitals.checkpoints.verification import inspect

NAN, INFINITY = float("nan"), float("inf")
GOOD = [0.5, -1.25] * 600


def loaded(path, **limits):
    findings = Findings()
    is_loaded = load.check(listing(str(path)), findings, load.Limits(**{"seconds": 60, "tries_torch": False} | limits))
    return is_loaded, findings


def safetensors_with(values, dtype="F32"):
    """name -> list of float32, written as a safetensors file."""
    header, body = {}, b""
    for name, items in values.items():
        raw = items if isinstance(items, bytes) else struct.pack(f"<{len(items)}f", *items)
        count_ = len(raw) // make.DTYPE_BYTES[dtype]
        header[name] = {"dtype": dtype, "shape": [4, count_ // 4], "data_offsets": [len(body), len(body) + len(raw)]}
        body += raw
    return make.safetensors_from(header, body)


def written(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


def test_good_weights_load_and_their_number_is_told(tmp_path):
    path = written(tmp_path / "c_5.pt", made.torch_zip_with({"a.weight": GOOD, "a.bias": [0.0] * 40}))
    is_loaded, findings = loaded(path)
    assert is_loaded
    assert findings.notes == ["2 tensors sampled: values are sound"]
    report = inspect(str(path), "load", limits=load.Limits(tries_torch=False))
    assert (report.state, report.level, report.proof) == ("verified", "load", "checksum")


def test_a_file_that_nobody_loads_keeps_the_level_down_and_is_named(tmp_path):
    (tmp_path / "c").mkdir()
    written(tmp_path / "c" / "a.pt", made.torch_zip_with({"a.weight": GOOD}))
    written(tmp_path / "c" / "b.pt", torch_file.LEGACY_START + bytes(100))
    is_loaded, findings = loaded(tmp_path / "c")
    assert not is_loaded
    assert "1 file loaded by nobody, such as b.pt" in findings.notes


VIEWS = {
    "transposed": (0, (300, 4), (1, 300)), "row": (300, (300,), (1,)), "expanded": (0, (2048, 64), (0, 1)), "one value": (7, (5000,), (0,)),
    "overlapping": (0, (90, 11), (1, 1)), "columns": (0, (4, 5), (300, 1)), "steps": (0, (2, 100), (600, 3)), "diagonal": (0, (4,), (301,)),
    "scalar": (1199, (), ()), "empty": (1200, (0, 5), (5, 1)), "broadcast": (0, (3, 4, 1, 300), (0, 300, 300, 1)),
}  # fmt: skip


@pytest.mark.parametrize("view", VIEWS)
def test_a_view_of_a_tensor_is_as_good_as_the_tensor(tmp_path, view):
    offset, size, stride = VIEWS[view]
    views = {"view": made.TensorOf(0, len(GOOD), offset, size, stride)}
    is_loaded, findings = loaded(written(tmp_path / "c.pt", made.torch_zip_with({"a.weight": GOOD}, views=views)))
    assert (is_loaded, findings.damaged) == (True, [])


def test_what_lies_beside_a_view_is_not_judged_and_it_is_told_that_the_view_is_not_sampled(tmp_path):
    values = [number for _ in range(600) for number in (0.5, NAN)]
    state = {"model": {"view.weight": made.TensorOf(0, 1200, 0, (600,), (2,))}}
    content = make.torch_zip_bytes(storages=(1200,), pickled=made.tensor_pickle(state))
    at = made.data_offset(content)
    raw = struct.pack("<1200f", *values)
    is_loaded, findings = loaded(written(tmp_path / "c.pt", content[:at] + raw + content[at + len(raw) :]))
    assert findings.damaged == []
    assert "not sampled: 1 view of a larger tensor, such as model.view.weight in c.pt" in findings.notes
    assert is_loaded


@pytest.mark.parametrize(
    ("offset", "size", "stride"),
    [(1, (4, 300), (300, 1)), (0, (4, 300), (301, 1)), (1200, (5,), (0,)), (0, (5,), (1, 1)), (1 << 60, (1,), (1,))],
)
def test_a_view_that_reaches_beyond_its_storage_is_damage(tmp_path, offset, size, stride):
    views = {"view": made.TensorOf(0, len(GOOD), offset, size, stride)}
    _, findings = loaded(written(tmp_path / "c.pt", made.torch_zip_with({"a.weight": GOOD}, views=views)))
    assert len(findings.damaged) == 1
    assert "cannot be loaded" in findings.damaged[0]


@pytest.mark.parametrize("wrong", [NAN, INFINITY])
@pytest.mark.parametrize("kind", ["torch", "safetensors"])
def test_weights_that_are_not_finite_are_found_at_level_load_only_and_named(tmp_path, wrong, kind):
    values = {"layers.0.weight": GOOD, "layers.1.weight": [*GOOD[:7], wrong, *GOOD[8:]]}
    if kind == "torch":
        path = written(tmp_path / "c_5.pt", made.torch_zip_with(values))
        assert inspect(str(path), "content").level == "content"
    else:
        path = written(tmp_path / "c_5.safetensors", safetensors_with(values))
    report = inspect(str(path), "load", limits=load.Limits(tries_torch=False))
    assert report.state == "corrupt"
    assert report.level == ("content" if kind == "torch" else "structure")
    assert f"layers.1.weight in {path.name} holds {'NaN' if wrong != wrong else 'infinity'} (1 of 1200" in report.reasons[0]


def test_bf16_is_read_without_a_library_for_it(tmp_path):
    good = np.frombuffer(np.array(GOOD, "<f4").tobytes(), "<u2")[1::2]
    bad = good.copy()
    bad[100] = 0x7FC0
    is_loaded, _ = loaded(written(tmp_path / "good.safetensors", safetensors_with({"w.weight": good.tobytes()}, "BF16")))
    assert is_loaded
    is_loaded, findings = loaded(written(tmp_path / "bad.safetensors", safetensors_with({"w.weight": bad.tobytes()}, "BF16")))
    assert not is_loaded
    assert "holds NaN (1 of 1200" in findings.damaged[0]


def test_weights_that_are_all_zero_are_damage_and_a_few_of_them_a_note(tmp_path):
    zeros = [0.0] * 1_200
    _, findings = loaded(written(tmp_path / "c.pt", made.torch_zip_with({"a.weight": zeros, "b.weight": zeros})))
    assert "2 of 2 sampled weight tensors are all zero, such as model.a.weight" in findings.damaged[0]
    values = {"a.weight": zeros, "b.weight": GOOD, "c.weight": GOOD, "d.bias": zeros, "e.lora_B.weight": zeros}
    is_loaded, findings = loaded(written(tmp_path / "d.pt", made.torch_zip_with(values)))
    assert is_loaded
    assert "1 of 3 sampled weight tensors are all zero" in findings.notes[0]


def test_memory_that_was_never_written_is_known_by_its_denormal_numbers(tmp_path):
    values = {"a.weight": [1.4e-42, 0.0, 3.1e-43, 0.0] * 300, "exp_avg_sq.weight": [1e-40] * 1_200}
    is_loaded, findings = loaded(written(tmp_path / "c.pt", made.torch_zip_with(values)))
    assert not is_loaded
    assert len(findings.damaged) == 1
    assert "model.a.weight in c.pt holds denormal numbers" in findings.damaged[0]


def test_scores_and_masks_that_are_not_finite_by_design_are_no_damage():
    def one(name, values, items=1_200):
        return Tensor(name, "f", "F32", items, 0, 2), count([np.array(values, "<f4").tobytes()], "F32")

    verdict = judge(
        [
            one("callbacks.EarlyStopping.best_score", [INFINITY], 1),
            one("attn.causal_mask", [-INFINITY, 0.0] * 20),
            one("metrics.state.value", [NAN] * 40),
            one("layer.weight", [0.1] * 40),
        ]
    )
    assert verdict.damaged == ()


@pytest.mark.parametrize(
    ("dtype", "bits", "expected"),
    [
        ("F16", [0x7C00, 0x7E00, 0x0000, 0x0001, 0x3C00], (1, 1, 1, 1)),
        ("BF16", [0x7F80, 0xFFC0, 0x8000, 0x0001, 0x3F80], (1, 1, 1, 1)),
        ("F32", [0x7F800000, 0x7FC00000, 0x0, 0x1, 0x3F800000], (1, 1, 1, 1)),
        ("F64", [0x7FF0000000000000, 0x7FF8000000000000, 0x0, 0x1, 0x3FF0000000000000], (1, 1, 1, 1)),
        ("F8_E5M2", [0x7C, 0x7E, 0x80, 0x01, 0x3C], (1, 1, 1, 1)),
        ("F8_E4M3", [0x7E, 0xFF, 0x80, 0x01, 0x38], (0, 1, 1, 0)),
    ],
)
def test_kinds_of_values_are_counted_in_every_number_format(dtype, bits, expected):
    view = {"F16": "<u2", "BF16": "<u2", "F32": "<u4", "F64": "<u8"}.get(dtype, "u1")
    values = count([np.array(bits, view).tobytes()], dtype)
    assert (values.infinite, values.nan, values.zero, values.denormal) == expected
    assert values.items == 5


class _Writes:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return (Path.write_text, (Path(self.path), "owned"))


class _Calls:
    def __init__(self, function, *arguments):
        self.call = (function, arguments)

    def __reduce__(self):
        return self.call


@pytest.mark.parametrize("protocol", [2, 4, 5])
def test_a_pickle_that_would_write_a_file_does_not_write_it_in_the_child_either(tmp_path, protocol):
    target = tmp_path / "owned"
    payloads = [
        _Calls(os.system, f"touch {target}"),
        _Writes(str(target)),
        _Calls(eval, f"open({str(target)!r}, 'w')"),
        _Calls(open, str(target), "w"),
        _Calls(subprocess.Popen, ["touch", str(target)]),
        _Calls(os.open, str(target), os.O_CREAT | os.O_WRONLY),
    ]
    for number, payload in enumerate(payloads):
        raw = make.torch_zip_bytes(pickled=pickle.dumps({"w": payload}, protocol=protocol))
        path = written(tmp_path / f"c_{number}.pt", raw)
        loaded(path)  # straight into the child, past the structure check that refuses it
        assert inspect(str(path), "load").state in ("corrupt", "complete")
        assert not target.exists()


CONFINED = """
import sys
sys.path.insert(0, {root!r})
import os, socket, subprocess
from trainvitals.checkpoints import load_child
print(load_child.confine(60, 4 << 30))
sys.addaudithook(load_child.refuse)
import resource
done = []
for name, act in [
    ("open", lambda: open({target!r}, "w")), ("os.open", lambda: os.open({target!r}, os.O_CREAT | os.O_RDWR)),
    ("connect", lambda: socket.create_connection(("127.0.0.1", {port}), 1)), ("Popen", lambda: subprocess.Popen(["true"])),
    ("system", lambda: os.system("touch " + {target!r})), ("fork", os.fork), ("remove", lambda: os.remove({target!r} + "x")),
    ("exec", lambda: os.execv("/bin/true", ["true"])), ("dlopen", lambda: __import__("ctypes").CDLL("libm.so.6")),
    ("memory", lambda: bytearray(8 << 30)),
]:
    try:
        act()
        done.append(name)
    except (OSError, MemoryError):
        pass
print(done, resource.getrlimit(resource.RLIMIT_CORE), resource.getrlimit(resource.RLIMIT_FSIZE))
"""


def test_the_child_can_neither_write_connect_start_programs_nor_take_memory(tmp_path):
    import socket

    root = str(Path(__file__).resolve().parents[2])
    with socket.create_server(("127.0.0.1", 0)) as server:
        script = CONFINED.format(root=root, target=str(tmp_path / "owned"), port=server.getsockname()[1])
        ended = subprocess.run([sys.executable, "-I", "-c", script], capture_output=True, text=True, timeout=60, check=True)
    assert ended.stdout.splitlines()[-1] == "[] (0, 0) (0, 0)", ended.stdout
    assert not (tmp_path / "owned").exists()


def test_a_child_that_runs_out_of_its_limits_says_nothing_about_the_checkpoint(tmp_path):
    path = written(tmp_path / "c_5.pt", made.torch_zip_with({"a.weight": GOOD}))
    for limits in ({"seconds": 0}, {"memory_bytes": 1 << 20}):
        is_loaded, findings = loaded(path, **limits)
        assert not is_loaded
        assert findings.damaged == []
        assert "could not be loaded" in findings.notes[0]


def test_a_stopped_look_ends_its_child(tmp_path):
    path = written(tmp_path / "c_5.pt", made.torch_zip_with({"a.weight": GOOD}))
    findings = Findings()
    assert load.check(listing(str(path)), findings, stop=lambda: True) is False
    assert findings.notes == ["could not be loaded within limits: it was stopped"]


@pytest.mark.parametrize("answer", [b"", b"{", b"[]", b'{"damaged":[1]}', b'{"damaged":[],"notes":[]}', b"\xff", b"[" * 100_000])
def test_an_answer_of_the_child_that_makes_no_sense_is_no_verdict(answer):
    assert load._parsed(answer) is None


def test_sentences_of_the_child_are_shown_without_control_characters():
    answer = {"damaged": ["a\x1b[31mb"], "unproven": [], "notes": ["x" * 10_000] * 100}
    found = load._parsed(json.dumps(answer).encode())
    assert found["damaged"] == ["a\\x1b[31mb"]
    assert len(found["notes"]) == 20
    assert len(found["notes"][0]) == 500


def test_a_tensor_that_claims_more_than_its_data_cannot_be_loaded(tmp_path):
    from trainvitals.checkpoints.files import opened

    raw = made.torch_zip_with({"a.weight": GOOD})
    short = raw.replace(struct.pack("<f", GOOD[0]) + struct.pack("<f", GOOD[1]), b"", 0)
    path = written(tmp_path / "c.pt", short)
    with opened(str(path)) as reader:
        assert [tensor.name for tensor in of_torch(reader, "c.pt")] == ["model.a.weight"]
    state = {"w": made.TensorOf(0, 5_000)}
    with make.zipfile.ZipFile(tmp_path / "d.pt", "w") as archive:
        archive.writestr("archive/data.pkl", made.tensor_pickle(state))
        archive.writestr("archive/data/0", bytes(16))
    with opened(str(tmp_path / "d.pt")) as reader, pytest.raises(NotLoadable, match="larger than its data"):
        list(of_torch(reader, "d.pt"))


def test_a_shard_is_loaded_entry_by_entry_and_a_tensor_is_named_as_the_metadata_names_it(tmp_path, monkeypatch):
    def entry(items, name="data/0"):
        if name == "object":
            return make.torch_zip_bytes(storages=())
        values = [NAN if items == 2_048 and place == 5 else 1e-42 if items == 1_200 else 0.5 for place in range(items)]
        return make_entry(values)

    def make_entry(values):
        buffer = io.BytesIO()
        with make.zipfile.ZipFile(buffer, "w", make.zipfile.ZIP_STORED) as archive:
            archive.writestr("archive/data.pkl", made.tensor_pickle(made.TensorOf(0, len(values))))
            archive.writestr("archive/data/0", struct.pack(f"<{len(values)}f", *values))
        return buffer.getvalue()

    monkeypatch.setattr(dcp, "entry_bytes", entry)
    tensors = {"model.layers.0.weight": 1_024, "optimizer.state.w.exp_avg_sq": 1_200}
    path = dcp.write(tmp_path / "step-5", dcp.parts(tensors, 2, ("lr_scheduler",)))
    is_loaded, findings = loaded(path)
    assert is_loaded, findings
    assert findings.notes == ["4 tensors sampled: values are sound"]
    path = dcp.write(tmp_path / "step-6", dcp.parts({"model.a.weight": 2_048, "model.b.weight": 1_200}, 1))
    _, findings = loaded(path)
    assert "tensor model.a.weight in __0_0.distcp holds NaN" in findings.damaged[0]
    assert "tensor model.b.weight in __0_0.distcp holds denormal numbers" in findings.damaged[1]


def test_a_hugging_face_checkpoint_with_a_manifest_reaches_level_load(tmp_path):
    directory = make.huggingface(tmp_path, 500)
    (directory / "model.safetensors").write_bytes(safetensors_with({"a.weight": GOOD}))
    made.write_manifest(directory, 500)
    report = inspect(str(directory), "load", limits=load.Limits(tries_torch=False))
    assert (report.state, report.level, report.proof) == ("verified", "load", "manifest"), report.reasons
