"""Processes that decode images beside this one: how they start, and what they leave to it."""

import multiprocessing
import signal
from multiprocessing.context import ForkServerContext

import torch


def forkserver() -> ForkServerContext:
    """For workers that share one import of torch, which would else take each of them seconds and memory of its own."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["__main__", "contune.data.stream"])
    return context


def begin() -> None:
    """In each of them: no more threads than its core has, and an interruption is for the process that started it."""
    torch.set_num_threads(1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
