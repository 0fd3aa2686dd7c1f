"""include/lantern/plan.h by ctypes: the step plan for an engine in Python. Needs nothing but the shared library.

Addresses are plain integers, so that any owner of memory will do: ctypes arrays, numpy (array.ctypes.data), torch
(tensor.data_ptr()). All arrays are int32 and contiguous.
"""

import ctypes
from ctypes import POINTER, Structure, byref, c_char_p, c_int32, c_int64, c_size_t, c_uint32, c_void_p

CPU, CUDA = 0, 1
FLATTENED, PER_REQUEST, DRAFTS = 1, 2, 4

# The order is that of the header.
OUTPUTS = [
    "query_start", "query_len", "seq_len", "counts", "errors", "token_request", "token_context_len",
    "local_context_len", "decode_lens", "per_request_context_lens", "paged_mqa_sm90", "paged_mqa_sm100", "mla_tiles",
    "mla_num_splits", "prefill_chunks", "draft_query_start_loc", "draft_seq_lens", "draft_positions",
    "draft_token_indices", "slot_mapping", "compressed_context_len", "compressed_slot_mapping",
    "expanded_block_table", "draft_slot_mapping",
]


class Sized(Structure):
    """A struct of the header: struct_size is its own size."""

    def __init__(self, **fields):
        super().__init__(struct_size=ctypes.sizeof(type(self)), **fields)


class Group(Sized):
    _fields_ = [("struct_size", c_uint32), ("block_size", c_int32), ("compress_ratio", c_int32),
                ("num_blocks", c_int32), ("max_blocks_per_request", c_int32), ("block_table_stride", c_int32)]


class Config(Sized):
    _fields_ = [("struct_size", c_uint32), ("device_kind", c_int32), ("max_requests", c_int32),
                ("max_tokens", c_int32), ("max_query_len", c_int32), ("max_model_len", c_int32),
                ("groups", POINTER(Group)), ("num_groups", c_uint32), ("outputs", c_uint32), ("workers", c_int32),
                ("mla_parts", c_int32), ("mla_fixed_overhead_blocks", c_int32), ("mla_topk", c_int32),
                ("dcp_world", c_int32), ("dcp_rank", c_int32), ("dcp_interleave", c_int32),
                ("prefill_workspace_tokens", c_int32), ("prefill_logits_bytes", c_int64)]


class Bucket(Sized):
    _fields_ = [("struct_size", c_uint32), ("tokens", c_int32), ("requests", c_int32), ("query_width", c_int32)]


class Inputs(Sized):
    _fields_ = [("struct_size", c_uint32), ("num_block_tables", c_uint32), ("num_requests", c_void_p),
                ("num_tokens", c_void_p), ("query_start_loc", c_void_p), ("seq_lens", c_void_p),
                ("prefilling", c_void_p), ("accepted", c_void_p), ("block_tables", POINTER(c_void_p))]


class Array(Sized):
    _fields_ = [("struct_size", c_uint32), ("reserved", c_uint32), ("data", c_void_p), ("size", c_size_t)]


class Library:
    def __init__(self, path):
        self.c = ctypes.CDLL(path)
        self.c.lantern_plan_last_error.restype = c_char_p
        self.c.lantern_plan_fault_name.restype = c_char_p
        self.c.lantern_plan_fault_message.restype = c_char_p
        self.c.lantern_plan_buffer_bytes.argtypes = [POINTER(Config), POINTER(c_size_t)]
        self.c.lantern_plan_create.argtypes = [POINTER(Config), c_void_p, c_size_t, POINTER(c_void_p)]
        self.c.lantern_plan_destroy.argtypes = [c_void_p]
        self.c.lantern_plan_destroy.restype = None
        self.c.lantern_plan_get_output.argtypes = [c_void_p, ctypes.c_int, c_uint32, POINTER(Array)]
        self.c.lantern_plan_run.argtypes = [c_void_p, POINTER(Inputs), POINTER(Bucket), c_void_p]

    def check(self, status):
        if status != 0:
            raise RuntimeError(self.c.lantern_plan_last_error().decode())

    def buffer_bytes(self, config):
        size = c_size_t()
        self.check(self.c.lantern_plan_buffer_bytes(byref(config), byref(size)))
        return size.value

    def fault(self, code):
        return self.c.lantern_plan_fault_name(code).decode(), self.c.lantern_plan_fault_message(code).decode()


class Plan:
    """A plan over the caller's memory, which must outlive it and every graph that it was captured in."""

    def __init__(self, library, config, buffer_address, buffer_bytes):
        self.library = library
        self.handle = c_void_p()
        library.check(library.c.lantern_plan_create(byref(config), buffer_address, buffer_bytes, byref(self.handle)))

    def close(self):
        self.library.c.lantern_plan_destroy(self.handle)
        self.handle = None

    def output(self, name, group=0):
        """(address, number of int32) of an output; the address stays what it is for the plan's life."""
        array = Array()
        self.library.check(
            self.library.c.lantern_plan_get_output(self.handle, OUTPUTS.index(name), group, byref(array)))
        return array.data, array.size

    def run(self, inputs, bucket, stream=None):
        self.library.check(self.library.c.lantern_plan_run(self.handle, byref(inputs), byref(bucket), stream))


def inputs(num_requests, num_tokens, query_start_loc, seq_lens, prefilling, block_tables, accepted=None):
    """Inputs of addresses; block_tables has one for each cache group."""
    tables = (c_void_p * len(block_tables))(*block_tables)
    made = Inputs(num_block_tables=len(block_tables), num_requests=num_requests, num_tokens=num_tokens,
                  query_start_loc=query_start_loc, seq_lens=seq_lens, prefilling=prefilling, accepted=accepted,
                  block_tables=ctypes.cast(tables, POINTER(c_void_p)))
    made.keep = tables
    return made
