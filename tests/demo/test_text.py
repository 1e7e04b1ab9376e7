"""The demo's text and the order of its samples."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from trainvitals.demo.text import CHARACTERS, VOCABULARY_SIZE, Sampler, Text, encode, standard_library


def test_the_standard_library_is_read_in_one_fixed_order() -> None:
    first, second = standard_library(50_000), standard_library(50_000)
    assert np.array_equal(first.tokens, second.tokens)
    assert 40_000 < len(first.tokens) <= 50_000
    assert int(first.tokens.max()) < VOCABULARY_SIZE


def test_tests_and_installed_packages_are_not_read(tmp_path: Path) -> None:
    for folder in ("site-packages", "test", "kept"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "module.py").write_text(folder[0] * 10)
    assert np.array_equal(standard_library(directory=tmp_path).tokens, encode(b"k" * 10))


def test_a_directory_without_sources_is_said(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="needs some text"):
        standard_library(directory=tmp_path)


def test_bytes_outside_the_vocabulary_are_dropped() -> None:
    assert [CHARACTERS[i] for i in encode("aé\tb\n".encode())] == ["a", "b", "\n"]


def test_one_epoch_takes_every_window_once_and_the_next_in_another_order() -> None:
    text = Text(np.arange(16 + 64 * 10, dtype=np.int64).astype(np.uint8) % 96)
    sampler = Sampler(text, context=16, seed=1)
    orders = [sampler.batch(epoch * 10, 10, np.random.default_rng(0))[2] // 64 for epoch in range(2)]
    assert [sorted(order.tolist()) for order in orders] == [list(range(10))] * 2
    assert orders[0].tolist() != orders[1].tolist()


def test_a_sample_depends_on_its_number_only_also_across_an_epoch() -> None:
    text = standard_library(20_000)
    whole = Sampler(text, 16, seed=5).batch(0, 2 * Sampler(text, 16, 5).windows, np.random.default_rng(0))[2] // 64
    parts = Sampler(text, 16, seed=5)
    windows = parts.windows
    crossing = parts.batch(windows - 7, 14, np.random.default_rng(9))[2] // 64
    assert crossing.tolist() == whole[windows - 7 : windows + 7].tolist()


def test_contexts_are_the_characters_before_the_target() -> None:
    text = standard_library(20_000)
    contexts, targets, positions = Sampler(text, 16, seed=5).batch(3, 4, np.random.default_rng(0))
    for context, target, position in zip(contexts, targets, positions, strict=True):
        assert np.array_equal(context, text.tokens[position : position + 16])
        assert target == text.tokens[position + 16]


def test_a_text_without_one_window_is_refused() -> None:
    with pytest.raises(ValueError, match="fewer than one window"):
        Sampler(Text(np.zeros(20, np.uint8)), 16, seed=1)
