"""Two workers on a LangGraph thread, at once and with skewed clocks. `scripts/python.sh trials` tries it more often."""

from __future__ import annotations

import random

from trials import Trials


async def test_of_two_workers_one_continues_and_skewed_clocks_lose_no_turn(url):
    seed = random.randrange(1 << 32)
    trials = Trials([url], seed)
    await trials.run(10)
    assert not trials.failures, (seed, trials.counts, trials.failures)
    assert trials.counts["at once"] == trials.counts["skewed clocks"] == 10 and trials.counts["turns kept"] >= 10
