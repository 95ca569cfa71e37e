"""The array that native samplers work on."""

from __future__ import annotations

import ctypes

import llama_cpp
import numpy as np
import pytest

from localspec.llama.candidates import Candidates

pytestmark = pytest.mark.native


def test_what_is_written_is_what_a_sampler_sees():
    candidates = Candidates(10)
    n = candidates.write(np.array([7, 3]), np.array([0.5, 2.0], np.float32))
    n = candidates.write(np.array([9]), np.array([1.0], np.float32), n)
    sampler = llama_cpp.llama_sampler_init_top_k(2)
    try:
        ids, logits = candidates.apply(sampler, n)
        assert (ids.tolist(), logits.tolist()) == ([3, 9], [2.0, 1.0])
        # The array that the last call left does not limit the next one.
        candidates.write(np.arange(10), np.arange(10, dtype=np.float32))
        assert candidates.apply(sampler, 10)[0].tolist() == [9, 8]
    finally:
        llama_cpp.llama_sampler_free(sampler)


def test_those_that_are_kept_move_together():
    candidates = Candidates(10)
    n = candidates.write(np.arange(4), np.array([3, 1, 2, 0], np.float32))
    assert candidates.keep(np.array([False, True, True, False])) == 2
    sampler = llama_cpp.llama_sampler_init_top_k(n)
    try:
        assert candidates.apply(sampler, 2)[0].tolist() == [2, 1]
    finally:
        llama_cpp.llama_sampler_free(sampler)


def test_a_sampler_may_move_the_candidates_to_memory_of_its_own():
    elsewhere = (llama_cpp.llama_token_data * 1)(llama_cpp.llama_token_data(id=5, logit=4.0, p=0.0))

    @llama_cpp.llama_sampler_i_apply
    def apply(_, array):
        array.contents.data = ctypes.cast(elsewhere, llama_cpp.llama_token_data_p)
        array.contents.size = 1

    @llama_cpp.llama_sampler_i_name
    def name(_):
        return b"mover"

    interface = llama_cpp.llama_sampler_i(name=name, apply=apply)
    sampler = llama_cpp.llama_sampler_init(ctypes.byref(interface), None)
    candidates = Candidates(10)
    n = candidates.write(np.arange(4), np.arange(4, dtype=np.float32))
    try:
        for _ in range(2):
            ids, logits = candidates.apply(sampler, n)
            assert (ids.tolist(), logits.tolist()) == ([5], [4.0])
        plain = llama_cpp.llama_sampler_init_top_k(1)
        assert candidates.apply(plain, n)[0].tolist() == [3]
        llama_cpp.llama_sampler_free(plain)
    finally:
        llama_cpp.llama_sampler_free(sampler)
