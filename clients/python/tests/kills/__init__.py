"""Agents in Python and in Rust, and the server, killed at random while they book at the demo's desk.

    driver ──fork, kill -9──▶ agent in Python ─┐
           ──start, kill -9─▶ agent in Rust ───┼──HTTP──▶ server (kill -9) ─▶ local journal
           ──resolve, audit──────────────────┐ └──TCP───▶ desk, never killed ─▶ ledger
                                             └─────────▶ both

`scripts/python.sh kills 1000` kills 1,000 times and prints what was found. Agents in Rust are `runlog demo-agent`, whose
trips, tools and messages `trips.py` has, too: a run goes from process to process, and from language to language.
"""
