"""A log in a format that nobody knows, and a run that has not started, as the doctor sees them."""

import pytest

from tests.doctor.looking import look, says, settings_of
from trainvitals.__main__ import main
from trainvitals.doctor.check import FAULT, OK, WARNING

KNOWN = "iter {}: loss 3.0, time 1.0ms, mfu 1.0%\n"
OURS = "2026-01-02 03:04:05 | upd {} | xent 2.3\n"


def write(place, line, count, name="train.log"):
    (place / name).write_text("".join(line.format(number) for number in range(count)))


@pytest.mark.parametrize(("lines", "state"), [(10, OK), (60, WARNING), (500, FAULT)])
def test_a_log_in_no_known_format_is_a_fault_when_it_is_long_and_says_the_way_out(place, lines, state):
    write(place, OURS, lines)
    holds, found = says(look(settings_of(place), "log format"), state, f"{lines:,} lines")
    assert holds, found
    assert state == OK or "[formats.NAME]" in found[0][1]


def test_a_log_with_steps_is_in_order_also_beside_one_without(place):
    write(place, KNOWN, 60)
    write(place, OURS, 500, "launcher.log")
    assert says(look(settings_of(place), "log format"), OK, "steps are read in")[0]


def test_the_format_of_the_settings_is_tried_as_well(place):
    write(place, OURS, 500)
    formats = {"ours": {"pattern": r"upd (?P<step>\d+) \| xent (?P<loss>\S+)"}}
    assert says(look(settings_of(place, formats=formats), "log format"), OK, "steps are read in")[0]
    assert says(look(settings_of(place, {"log_format": "megatron"}), "log format"), FAULT, "read as megatron")[0]


def test_a_run_whose_steps_come_from_the_hook_needs_no_format(place):
    write(place, OURS, 500)
    (place / "run" / "metrics.rank00000.jsonl").write_text("{}\n")
    assert says(look(settings_of(place), "log format"), OK, "not needed")[0]


def test_a_hook_that_has_not_started_yet_is_no_fault(place):
    (place / "train.log").unlink()
    for run in ({"logs": []}, {"steps_from": "hook"}):
        ((state, text),) = look(settings_of(place, run), "hook")
        assert state == WARNING and "before the first start it is right" in text
    write(place, OURS, 5)  # the trainer has started: its hook should have, too
    assert look(settings_of(place, {"steps_from": "hook"}), "hook")[0][0] == FAULT


def test_parse_and_detect_name_the_way_to_a_format_of_ones_own(place, capsys):
    write(place, OURS.replace("upd", "u"), 5)
    assert main(["parse", str(place / "train.log")]) == 0
    assert "[formats.NAME]" in (told := capsys.readouterr().err) and "docs/formats.md" in told
    assert main(["detect", str(place / "train.log")]) == 2
    assert "[formats.NAME]" in capsys.readouterr().err
