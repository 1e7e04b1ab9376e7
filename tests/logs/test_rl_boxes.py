"""Updates of reinforcement learning in many lines: Stable-Baselines' boxes, RSL-RL's blocks."""

from reading import read, read_in_pieces

from trainvitals.logs.parser import Parser

RULE = "-" * 42 + "\n"


def box(**cells):
    return RULE + "".join(f"|    {name:<20} | {value:<11} |\n" for name, value in cells.items()) + RULE


def test_a_box_with_a_loss_is_a_step_and_one_of_an_evaluation_is_none():
    text = "Using cpu device\nWrapping the env in a DummyVecEnv.\n"
    for number in range(1, 6):
        text += box(fps=900, total_timesteps=2048 * number, learning_rate=3e-4, loss=20.0 - number, value_loss=36.5)
        text += box(mean_ep_length=200, mean_reward=-3.5, total_timesteps=2048 * number + 5)
    parser, steps, _ = read(text)
    assert parser.format == "stable_baselines"
    assert [(step.step, step.values["loss"]) for step in steps] == [(2048 * number, 20.0 - number) for number in range(1, 6)]
    assert steps[-1].values == {"fps": 900.0, "lr": 3e-4, "loss": 15.0, "value_loss": 36.5}
    assert parser.counters["bad_records"] == 0


def test_the_loss_of_a_value_function_grows_with_the_rewards_and_is_no_loss():
    _, steps, _ = read(box(approxkl=0.1, ep_rewmean="nan", total_timesteps=24960, policy_loss=0.0006, value_loss=63.5))
    assert "loss" not in steps[0].values
    assert steps[0].values["value_loss"] == 63.5
    assert steps[0].values["policy_loss"] == 0.0006
    assert "loss" not in steps[0].nonfinite


def test_the_only_loss_of_q_learning_is_that_of_a_critic():
    _, steps, _ = read(box(exploration_rate=0.05, total_timesteps=800, learning_rate=1e-4, loss=0.25, n_updates=90))
    assert "loss" not in steps[0].values
    assert steps[0].values["td_loss"] == 0.25


def test_a_part_of_the_loss_that_is_no_number_is_told():
    _, steps, _ = read(box(total_timesteps=800, actor_loss=-5.1, critic_loss="nan"))
    assert dict(steps[0].nonfinite) == {"critic_loss": "nan", "loss": "nan"}


def block(iteration, loss):
    return (
        f"{'#' * 80}\n              \x1b[1m Learning iteration {iteration}/1500 \x1b[0m\n\n"
        "                       Computation: 14963 steps/s (collection: 6.407s, learning 0.163s)\n"
        f"               Value function loss: {loss}\n"
        "                    Surrogate loss: -0.0021\n"
        "Episode_Reward/track_lin_vel_xy_exp: 1.2263\n"
        f"{'-' * 80}\n                   Total timesteps: 24576\n                    Iteration time: 0.50s\n"
        "                        Total time: 1.70s\n                               ETA: 00:10:00\n\n"
    )


def test_a_block_goes_on_to_the_next_one():
    text = "".join(block(number, loss) for number, loss in ((7, 0.25), (8, "inf"), (9, 0.5)))
    parser, steps, _ = read(text)
    assert parser.format == "rsl_rl"
    assert [(step.step, step.values.get("value_function_loss"), step.nonfinite.get("loss")) for step in steps] == [
        (7, 0.25, None), (8, None, "inf"), (9, 0.5, None),
    ]  # fmt: skip
    assert not any("loss" in step.values for step in steps)
    assert steps[0].values["step_time_s"] == 0.5
    assert steps[0].values["surrogate_loss"] == -0.0021


def test_each_goes_on_at_any_byte():
    for text in (box(total_timesteps=5, loss=2.5) * 2, block(7, 0.25) + block(8, 0.5)):
        data = text.encode()
        whole = Parser(mtime_ns=1_767_400_000_000_000_000)
        expected = whole.feed(data) + whole.finish()
        for width in (3, 50):
            assert read_in_pieces(data, width) == expected
