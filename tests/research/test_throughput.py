"""The page of throughput says where its aim is missed.

Mutants killed: the aim's comparison turned round, a missed setting left out, the ratio turned over.
Chance of a false alarm: none, nothing is measured.
"""

from __future__ import annotations

import argparse

from research.throughput_page import GPU_AIM, Clock, Row, Taken, Work, command, gpu_reading

WORK = Work(read=100, padded=200, operations=1e12, plain_operations=2e12)


def row(name: str, ratio: float) -> Row:
    loop = Taken(wall=ratio, cpu=1.0)
    return Row(name, "float32", 20, WORK, loop, loop, Taken(1.0, 1.0), Taken(0.1, 0.1), 4e12)


def test_a_missed_aim_is_named() -> None:
    said = gpu_reading([row("long", GPU_AIM - 1), row("short", GPU_AIM + 20)], Clock("cuda"))
    assert f"**The aim of {GPU_AIM} times is missed** for long in float32." in said
    assert "19 to 40 times as fast" in said
    said = gpu_reading([row("short", GPU_AIM)], Clock("cuda"))
    assert "missed" not in said
    assert "20 to 20 times as fast" in said


def test_the_command_is_the_one_that_was_run() -> None:
    told = command(argparse.Namespace(device="cuda", answers=256))
    assert told.endswith(" --device cuda --answers 256")
    assert command(argparse.Namespace(device="cpu", answers=16)).endswith(" --model PATH.gguf")
