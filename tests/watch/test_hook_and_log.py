"""A trainer whose hook and whose log tell the same start: one attempt, one configuration, and no change that is none."""

from __future__ import annotations

from test_watchdog import Bench

from trainvitals.watch.metadata import read_file


def arguments(**values):
    rows = "".join(f"  {name} {'.' * (40 - len(name))} {value}\n" for name, value in values.items())
    return f"------------------------ arguments ------------------------\n{rows}-------------------- end of arguments ---------------------\n"


def line(step):
    return (
        f" iteration {step:8d}/ 20000 | consumed samples: {step * 8} | elapsed time per iteration (ms): 2000.0 | "
        "learning rate: 3.0E-04 | lm loss: 3.0E+00 | grad norm: 0.300 | number of skipped iterations:   0 | number of nan iterations:   0 |\n"
    )


def test_what_hook_and_log_both_tell_is_one_start_however_their_lines_come(tmp_path):
    log = tmp_path / "train.log"
    bench = Bench(tmp_path, logs=[str(log)])
    told = {"section": "config", "values": {"learning_rate": 3e-4}, "part": 0, "parts": 1}
    for start in range(3):
        first = 20 * start
        with log.open("a") as file:  # the arguments come before the hook is made
            file.write(arguments(lr=3e-4, seed=1, save="/c"))
        bench.watchdog.turn()
        bench.header(pid=1 + start)
        bench.append(
            {"type": "event", "kind": "metadata", "time_ns": bench.clock.time_ns(), "step": None, "text": "", "data": told}
        )
        for step in range(first, first + 20):
            bench.step(step, loss=3.0)
            with log.open("a") as file:
                file.write(line(step))
            bench.clock.advance(2)
            if step % 7 == 0:
                bench.watchdog.turn()
        bench.watchdog.turn()
    starts = bench.events("attempt_start")
    assert [event.attempt for event in starts] == [1, 2, 3] and {event.source for event in starts} == {"hook"}
    assert not [event for event in bench.events("finding") if event.data["rule"] == "resume_config_changed"]
    assert read_file(bench.dir / "metadata" / "attempt-00003.json")["sections"]["config"] == {"learning_rate": 3e-4}
    bench.store.close()
