"""`resume_config_changed`: what differs from the attempt before, key by key, told once."""

from __future__ import annotations

import json
from dataclasses import asdict

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from made_up import curve

from trainvitals.detect.config_keys import Change, arguments_as_keys, as_text, sentence, severity_of
from trainvitals.detect.engine import Engine
from trainvitals.records import Event, Severity

RULE = "resume_config_changed"


def told(section, values, attempt=None, part=0, parts=1, source="hook"):
    data = {"section": section, "values": values, "part": part, "parts": parts}
    return Event("metadata", 1, attempt=attempt, source=source, data=data)


def start(attempt):
    return Event("attempt_start", 1, attempt=attempt, data={"attempt": attempt})


def run(*records, engine=None):
    engine = engine or Engine("r")
    found = []
    for record in records:
        for one in record if isinstance(record, list) else [record]:
            found += engine.update(one)
    return [finding for finding in found if finding.rule == RULE]


def attempt(number, *metadata, points=3):
    return [*metadata, start(number), *curve(points, first=1 + 10 * number, attempt=number)]


def test_what_changed_is_named_with_the_gravest_first():
    first = {"lr": 3e-4, "seed": 1, "log_interval": 10, "master_port": 1234, "hidden_size": 4096}
    second = {"lr": 1e-4, "seed": 2, "log_interval": 50, "master_port": 4321, "hidden_size": 4096}
    (found,) = run(
        attempt(1, told("config", first), told("git", {"commit": "1a2b3c4" + "0" * 33})),
        attempt(2, told("config", second), told("git", {"commit": "4d5e6f7" + "0" * 33})),
    )
    assert (
        found.message
        == "settings differ from attempt 1: git 1a2b3c4 → 4d5e6f7; lr 3e-4 → 1e-4; seed 1 → 2; log_interval 10 → 50; 1 more"
    )
    assert (found.severity, found.attempt, found.detected_step, found.is_open) == (Severity.WARNING, 2, 21, False)
    assert found.data["changed"] == 5 and found.data["compared_with"] == 1 and len(found.data["changes"]) == 5


def test_only_expected_changes_are_a_mark_on_the_chart():
    (found,) = run(
        attempt(1, told("config", {"save": "/a", "load": None}), told("job", {"id": 1})),
        attempt(2, told("config", {"save": "/b", "load": "/a"}), told("job", {"id": 2})),
    )
    assert found.severity is Severity.INFO and found.data["changed"] == 3


def test_nothing_changed_and_a_first_attempt_tell_nothing():
    same = told("config", {"lr": 1e-4, "config_sha256": "a"})
    assert run(attempt(1, same), attempt(2, same), attempt(3, same)) == []


def test_a_section_that_comes_after_the_first_steps_is_added_to_the_same_finding():
    found = run(
        attempt(1, told("config", {"lr": 1})),
        [told("packages", {"torch": "2.9.0"}, attempt=1)],
        attempt(2, told("config", {"lr": 2})),
        [told("packages", {"torch": "2.10.0"}, attempt=2)],
    )
    assert len(found) == 2 and found[0].id == found[1].id
    assert "torch" not in found[0].message and "not_compared" in found[0].data and found[0].data["not_compared"] == ["packages"]
    assert found[1].message == "settings differ from attempt 1: lr 1 → 2; torch 2.9.0 → 2.10.0"
    assert found[1].data["not_compared"] == []


def test_a_late_section_alone_is_found_and_makes_a_mark_a_warning():
    found = run(
        attempt(1, told("config", {"save": 1}), told("git", {"commit": "a" * 40})),
        attempt(2, told("config", {"save": 2})),
        [told("git", {"commit": "b" * 40}, attempt=2)],
    )
    assert [one.severity for one in found] == [Severity.INFO, Severity.WARNING] and len({one.id for one in found}) == 1


def test_sections_that_one_side_lacks_or_could_not_tell_are_not_compared():
    (found,) = run(
        attempt(1, told("config", {"lr": 1}), told("git", {"commit": "a" * 40}), told("layout", {"tp": 8})),
        attempt(2, told("config", {"lr": 2}), told("git", {"unavailable": "no git"}), told("software", {"nccl": "2"})),
    )
    assert found.data["changed"] == 1 and found.data["not_compared"] == ["git", "layout", "software"]


def test_an_attempt_that_told_nothing_does_not_hide_a_change():
    (found,) = run(attempt(1, told("config", {"lr": 1})), attempt(2), attempt(3, told("config", {"lr": 2})))
    assert found.attempt == 3 and "from attempt 1" in found.message


def test_parts_are_put_together_and_a_torn_section_is_not_compared():
    def split(lr):
        return [told("config", {"a": 1}, part=0, parts=2), told("config", {"lr": lr}, part=1, parts=2)]

    assert len(run(attempt(1, *split(1)), attempt(2, *split(2)))) == 1
    assert run(attempt(1, *split(1)), attempt(2, split(2)[0])) == []
    assert run(attempt(1, *split(1)), attempt(2, split(2)[1])) == []


def test_a_trainer_that_prints_its_arguments_again_is_the_next_start():
    """A log tells the second start's arguments before anything shows that it is another attempt."""
    (found,) = run(
        attempt(1, told("config", {"lr": 1}, source="log")),
        [told("config", {"lr": 2}, attempt=1, source="log")],
        attempt(2),
    )
    assert found.attempt == 2 and "lr 1 → 2" in found.message


def test_a_second_describe_before_the_first_step_replaces_the_first():
    assert run(attempt(1, told("config", {"lr": 1})), attempt(2, told("config", {"lr": 2}), told("config", {"lr": 1}))) == []


def test_keys_that_came_and_went_are_told():
    (found,) = run(
        attempt(1, told("config", {"lr": 1, "old_batch": 2})), attempt(2, told("config", {"lr": 1, "new_batch": True}))
    )
    assert found.message == "settings differ from attempt 1: new_batch not set → True; old_batch 2 → not set"


def test_the_command_line_is_compared_where_no_settings_are_told():
    one, two = "train.py --lr 1e-4 --bf16 --port 1", "train.py --lr 2e-4 --bf16 --port 2"
    script = [told("script", {"argv": line, "sha256": "a"}) for line in (one, two)]
    (found,) = run(attempt(1, script[0]), attempt(2, script[1]))
    assert found.message == "settings differ from attempt 1: lr 1e-4 → 2e-4; port 1 → 2"
    config = told("config", {"lr": 1})
    assert run(attempt(1, script[0], config), attempt(2, script[1], config)) == []


def test_ranks_on_other_nodes_are_one_change():
    def ranks(shift):
        return told("ranks", {str(n): f"node{n // 8 + shift}/0/GPU" for n in range(5_120)})

    (found,) = run(attempt(1, ranks(0)), attempt(2, ranks(1)))
    assert found.message == "settings differ from attempt 1: ranks placed elsewhere" and found.severity is Severity.INFO
    assert run(attempt(1, ranks(0)), attempt(2, ranks(0))) == []


def test_a_change_beyond_what_is_kept_is_seen_and_the_state_stays_small():
    def many(value):
        values = {f"k{m}": "v" * 120 for m in range(4_000)} | {"seed": value}
        keys = list(values)
        return [told("config", {k: values[k] for k in keys[p * 501 : (p + 1) * 501]}, part=p, parts=8) for p in range(8)]

    engine = Engine("r")
    (found,) = run(attempt(1, *many(1)), attempt(2, *many(2)), engine=engine)
    assert "keys beyond the limit changed" in found.message
    assert len(json.dumps(engine.to_state())) < 256 * 1024


def test_long_values_differ_behind_what_is_kept_of_them():
    (found,) = run(attempt(1, told("config", {"data": "a" * 900 + "1"})), attempt(2, told("config", {"data": "a" * 900 + "2"})))
    assert found.message == "settings differ from attempt 1: data changed"


def test_a_person_can_silence_the_rule():
    note = Event("annotation", 1, data={"rules": ["resume_*"]})
    assert run(attempt(1, told("config", {"lr": 1})), note, attempt(2, told("config", {"lr": 2}))) == []


@pytest.mark.parametrize(
    "key",
    ["lr", "learning_rate", "optimizer.lr", "global_batch_size", "per_device_train_batch_size", "micro_batch_size", "adam_beta1", "beta2",
     "weight_decay", "data_path", "train_data.blend", "seed", "bf16", "fp8", "params_dtype", "tensor_model_parallel_size", "num_layers",
     "hidden_size", "seq_length", "clip_grad", "warmup_steps", "train_iters", "lr_decay_style", "moe_router_topk", "moe_aux_loss_coeff",
     "tokenizer_model", "rotary_base", "trainer.max_steps", "expert_parallel", "attn_implementation", "numHeads",
     "use_checkpoint_lr_scheduler", "tf32", "label_smoothing_factor", "no_load_rng", "dataloader_drop_last", "moe.load_balancing_loss"],
)  # fmt: skip
def test_keys_that_steer_the_training_are_warnings(key):
    assert severity_of("config", key) is Severity.WARNING


@pytest.mark.parametrize(
    "key",
    ["save", "load", "log_interval", "output_dir", "master_port", "resume_from_checkpoint", "exit_duration_in_mins", "wandb.name",
     "tensorboard_dir", "run_name", "num_workers", "eval_batch_size", "data_cache_path", "hostlist", "ckpt_path", "iteration",
     "consumed_train_samples", "save_interval", "logging_steps", "distributed_timeout_minutes", "start_time", "foo",
     "log_learning_rate_to_tensorboard", "dataloader_num_workers", "dataloader_pin_memory", "no_save_optim", "no_load"],
)  # fmt: skip
def test_keys_that_a_restart_changes_are_marks(key):
    assert severity_of("config", key) is Severity.INFO


def test_numbers_are_shown_as_people_write_them():
    assert [as_text(v) for v in (3e-4, 1e-05, 0.1, 1.0, 4096, 1.5e-7, 1e20, True, None, -2.5e-4)] == [
        "3e-4", "1e-5", "0.1", "1", "4096", "1.5e-7", "1e20", "True", "None", "-2.5e-4",
    ]  # fmt: skip
    assert sentence(Change("config", "lr", as_text(3e-4), None)) == "lr 3e-4 → not set"


@given(st.floats(allow_nan=False, allow_infinity=False) | st.integers())
def test_every_number_is_kept_exactly(value):
    assert float(as_text(value)) == float(value) if abs(value) < 2**53 else True


def test_a_command_line_becomes_keys():
    line = "train.py --lr 1e-4 --betas 0.9 0.95 --bf16 --x=-1 +model.size=7b --shift -3 --last"
    assert arguments_as_keys(line) == {
        "lr": "1e-4", "betas": "0.9 0.95", "bf16": "True", "x": "-1 +model.size=7b"[:2], "model.size": "7b", "shift": "-3", "last": "True",
    }  # fmt: skip


def records(seed):
    base = {"lr": 1e-4, "seed": 1, "save": "/a"}
    items = []
    for number in range(1, 5):
        changed = {**base, "lr": 1e-4 / ((number + seed) % 3 + 1), "save": f"/{number}"}
        items += attempt(number, told("config", changed), told("git", {"commit": str(number) * 40}), points=4)
        items += [told("packages", {"torch": f"2.{number}"}, attempt=number), *curve(2, first=10 * number + 5, attempt=number)]
    return items


@given(st.integers(0, 5), st.integers(0, 60))
@settings(max_examples=40, deadline=None)
def test_going_on_from_saved_state_is_the_same_as_never_having_stopped(seed, cut):
    items = records(seed)
    whole = [asdict(finding) for finding in run(items)]
    engine = Engine("r")
    before = run(items[:cut], engine=engine)
    again = Engine("r")
    again.restore(json.loads(json.dumps(engine.to_state())))
    assert [asdict(f) for f in before + run(items[cut:], engine=again)] == whole


@given(st.lists(st.fixed_dictionaries({
    "section": st.sampled_from(["config", "git", "script", "ranks", "", 5]) | st.text(max_size=5),
    "values": st.dictionaries(st.text(max_size=9), st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=300) | st.lists(st.text())) | st.none(),
    "part": st.integers(-1, 3) | st.none() | st.booleans(), "parts": st.integers(0, 3) | st.just("x"),
}), max_size=20), st.lists(st.integers(1, 3) | st.none(), min_size=20, max_size=20))  # fmt: skip
@settings(max_examples=150, deadline=None)
def test_no_event_can_make_it_fail(datas, attempts):
    engine = Engine("r")
    for n, data in enumerate(datas):
        engine.update(Event("metadata", 1, attempt=attempts[n % 20], source="log", data=data))
        for step in curve(1, first=n + 1, attempt=attempts[n % 20] or 1):
            engine.update(step)
    json.dumps(engine.to_state(), allow_nan=False)


def test_a_loss_incident_of_that_attempt_names_the_changed_settings_among_its_checks():
    from trainvitals.incidents.grouping import Grouper
    from trainvitals.web.assemble import checks_of
    from trainvitals.web.view import AttemptView

    engine = Engine("r")
    spoil = curve(300, first=100, attempt=2, change=lambda k, v: v.update(loss=9.0) if k > 250 else None)
    found = []
    for record in [*attempt(1, told("config", {"lr": 3e-4})), told("config", {"lr": 1e-4}), start(2), *spoil]:
        found += engine.update(record)
    grouper = Grouper("r")
    incidents = {one.id: one for finding in found if (one := grouper.add(finding, 1)) is not None}
    loss = next(incident for incident in incidents.values() if incident.family == "loss")
    view = AttemptView(2, 1, 100, None)
    checks = checks_of(found, [], [], loss, 1, view, [])
    code = next(check for check in checks if check.layer == "code")
    assert code.mark == "!" and "lr 3e-4 → 1e-4" in code.evidence


def test_two_starts_in_one_hook_file_are_compared_by_the_detect_command(tmp_path, capsys):
    from trainvitals.__main__ import main
    from trainvitals.clock import ManualClock
    from trainvitals.hook import Recorder

    clock = ManualClock()
    for lr, first in ((3e-4, 0), (1e-4, 5)):
        recorder = Recorder(tmp_path, run="r", clock=clock, writer="direct")
        recorder.describe({"optimizer": {"lr": lr}, "api_key": f"secret{lr}"}, layout={"tp": 8}, tokens_per_step=1 << 22)
        for step in range(first, first + 10):
            recorder.log(step, loss=2.0)
            clock.advance(1)
        recorder.close()
    assert main(["detect", recorder.path]) == 1
    (line,) = [line for line in capsys.readouterr().out.splitlines() if RULE in line]
    found = json.loads(line)
    assert (found["severity"], found["first_step"], found["last_step"]) == ("warning", 5, 5)
    assert found["message"] == "settings differ from attempt 1: optimizer.lr 3e-4 → 1e-4"


def test_a_log_that_prints_its_settings_at_each_start_is_compared_without_the_hook():
    from trainvitals.logs.parser import Parser

    def megatron(lr, first):
        arguments = [
            f"  lr .............................................. {lr}",
            "  num_layers ...................................... 32",
        ]
        lines = [
            "------------------------ arguments ------------------------",
            *arguments,
            "-------------------- end of arguments ---------------------",
        ]
        lines += [
            f" iteration {step:8d}/ 1000 | consumed samples: {step} | elapsed time per iteration (ms): 100.0 | learning rate: 1.0E-04 | "
            "lm loss: 2.000000E+00 | grad norm: 0.300 | number of skipped iterations:   0 | number of nan iterations:   0 |"
            for step in range(first, first + 4)
        ]
        return "\n".join(lines) + "\n"

    parser = Parser()
    found = run(parser.feed((megatron(0.0003, 1) + megatron(0.0001, 3)).encode()) + parser.finish())
    assert [one.message for one in found] == ["settings differ from attempt 1: lr 3e-4 → 1e-4"]
    assert found[0].attempt == 2


def test_sections_that_two_threads_write_at_once_are_both_read():
    def parts(lr, commit):
        return [
            told("config", {"lr": lr}, parts=2),
            told("git", {"commit": commit * 40}),
            told("config", {"wd": 0.1}, part=1, parts=2),
        ]

    (found,) = run(attempt(1, *parts(3e-4, "a")), attempt(2, *parts(1e-4, "b")))
    assert found.message == "settings differ from attempt 1: git aaaaaaa → bbbbbbb; lr 3e-4 → 1e-4"


def test_a_section_with_a_missing_part_is_not_compared():
    whole = [
        told("config", {"lr": 1}, parts=3),
        told("config", {"a": 1}, part=1, parts=3),
        told("config", {"wd": 1}, part=2, parts=3),
    ]
    torn = [told("config", {"lr": 2}, parts=3), told("config", {"wd": 2}, part=2, parts=3)]
    assert run(attempt(1, *whole), attempt(2, *torn)) == []


@pytest.mark.parametrize("cut", ["config_keys_left_out", "keys_beyond_limit"])
def test_a_key_that_was_cut_on_one_side_is_no_change(cut):
    whole = {"lr": 3e-4, "seed": 1, "zz_last": 5, "config_sha256": "a" * 64}
    shorter = {"lr": 3e-4, "seed": 1, cut: 1, "config_sha256": ("b" if cut == "config_keys_left_out" else "a") * 64}
    assert run(attempt(1, told("config", whole)), attempt(2, told("config", shorter))) == []
    assert run(attempt(1, told("config", shorter)), attempt(2, told("config", whole))) == []
    (found,) = run(attempt(1, told("config", whole)), attempt(2, told("config", {**shorter, "seed": 2})))
    assert found.message == "settings differ from attempt 1: seed 1 → 2"
