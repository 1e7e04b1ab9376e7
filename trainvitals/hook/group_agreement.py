"""All ranks or none: before they do something together, each says in the store they met at whether it can. No collective, no library.

A rank that cannot says so at once, so the others need not wait for it until a time limit; whoever comes later reads the same.
"""

from __future__ import annotations

import time
from typing import Protocol

YES = "yes"
MAX_WHY = 400
#: Between two looks, the first and the longest: thousands of ranks ask one store.
LOOK_S = (0.01, 1.0)


class Store(Protocol):
    """The part of ``torch.distributed.Store`` that is needed."""

    def add(self, key: str, amount: int, /) -> int: ...
    def check(self, keys: list[str], /) -> bool: ...
    def get(self, key: str, /) -> bytes: ...
    def compare_set(self, key: str, expected: str, desired: str, /) -> bytes: ...


def agree(store: Store, name: str, rank: int, ranks: int, problem: str, wait_s: float) -> str:
    """ "" when all ranks said that they can, else why not, with the rank; the same on all of them.

    name: the same on all ranks, and used once. problem: why this rank cannot, "" = it can. wait_s: for those who have not come yet.
    Raises what the store raises.
    """
    outcome = f"{name}/outcome"
    if problem:
        store.compare_set(outcome, "", f"rank {rank}: {problem}"[:MAX_WHY])
    elif store.add(f"{name}/ready", 1) == ranks:
        store.compare_set(outcome, "", YES)
    until_s, look_s = time.monotonic() + wait_s, LOOK_S[0]
    while not store.check([outcome]):
        if time.monotonic() >= until_s:  # the first word counts, so that nobody goes on without the others
            store.compare_set(outcome, "", f"rank {rank} waited {wait_s:.0f} s, and not all {ranks} ranks had come"[:MAX_WHY])
            break
        time.sleep(look_s)
        look_s = min(LOOK_S[1], 1.5 * look_s)
    told = store.get(outcome).decode("utf-8", "replace")
    return "" if told == YES else told
