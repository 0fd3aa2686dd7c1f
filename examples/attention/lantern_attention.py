"""include/lantern/attention.h by ctypes. Needs nothing but the shared library; addresses are plain integers."""

import ctypes
from ctypes import POINTER, Structure, byref, c_char_p, c_float, c_int32, c_int64, c_size_t, c_uint32, c_void_p

CPU, CUDA = 0, 1
BF16, FP8 = 0, 1


class Sized(Structure):
    """A struct of the header: struct_size is its own size."""

    def __init__(self, **fields):
        super().__init__(struct_size=ctypes.sizeof(type(self)), **fields)


class Config(Sized):
    _fields_ = [("struct_size", c_uint32), ("device_kind", c_int32), ("threads", c_int32)]


class LatentCache(Sized):
    _fields_ = [("struct_size", c_uint32), ("format", c_int32), ("kv_lora_rank", c_int32), ("rope_dim", c_int32),
                ("block_size", c_int32), ("num_blocks", c_int32), ("data", c_void_p)]


class IndexCache(Sized):
    _fields_ = [("struct_size", c_uint32), ("dim", c_int32), ("block_size", c_int32), ("num_blocks", c_int32),
                ("data", c_void_p)]


class Rows(Sized):
    _fields_ = [("struct_size", c_uint32), ("tokens", c_int32), ("values", c_void_p), ("stride", c_int64),
                ("slot_mapping", c_void_p), ("hadamard", c_int32)]


class Step(Sized):
    _fields_ = [("struct_size", c_uint32), ("tokens", c_int32), ("requests", c_int32),
                ("block_table_stride", c_int32), ("token_request", c_void_p), ("token_context_len", c_void_p),
                ("block_table", c_void_p)]


class Select(Sized):
    _fields_ = [("struct_size", c_uint32), ("heads", c_int32), ("top_k", c_int32), ("hadamard", c_int32),
                ("query", c_void_p), ("weights", c_void_p), ("positions", c_void_p), ("slots", c_void_p),
                ("counts", c_void_p), ("workspace", c_void_p), ("workspace_bytes", c_size_t)]


class Decode(Sized):
    _fields_ = [("struct_size", c_uint32), ("heads", c_int32), ("top_k", c_int32), ("scale", c_float),
                ("q_latent", c_void_p), ("q_rope", c_void_p), ("q_rope_token_stride", c_int64),
                ("q_rope_head_stride", c_int64), ("slots", c_void_p), ("counts", c_void_p), ("out", c_void_p),
                ("lse", c_void_p), ("workspace", c_void_p), ("workspace_bytes", c_size_t)]


class Attention:
    """The ops on a device; stream is a cudaStream_t as an integer, None on the CPU."""

    def __init__(self, library_path, device_kind, threads=0):
        self.c = ctypes.CDLL(library_path)
        self.c.lantern_attention_last_error.restype = c_char_p
        self.c.lantern_attention_destroy.argtypes = [c_void_p]
        self.c.lantern_attention_destroy.restype = None
        self.handle = c_void_p()
        config = Config(device_kind=device_kind, threads=threads)
        self.check(self.c.lantern_attention_create(byref(config), byref(self.handle)))

    def close(self):
        self.c.lantern_attention_destroy(self.handle)
        self.handle = None

    def check(self, status):
        if status != 0:
            raise RuntimeError(self.c.lantern_attention_last_error().decode())

    def bytes_of(self, function, *structs):
        size = c_size_t()
        self.check(function(*structs, byref(size)))
        return size.value

    def latent_cache_bytes(self, cache):
        return self.bytes_of(self.c.lantern_latent_cache_bytes, byref(cache))

    def index_cache_bytes(self, cache):
        return self.bytes_of(self.c.lantern_index_cache_bytes, byref(cache))

    def select_workspace(self, cache, step, args):
        return self.bytes_of(self.c.lantern_index_select_workspace, self.handle, byref(cache), byref(step), byref(args))

    def decode_workspace(self, cache, step, args):
        return self.bytes_of(self.c.lantern_mla_decode_workspace, self.handle, byref(cache), byref(step), byref(args))

    def write_latents(self, cache, rows, stream):
        self.check(self.c.lantern_write_latents(self.handle, byref(cache), byref(rows), c_void_p(stream)))

    def write_index_keys(self, cache, rows, stream):
        self.check(self.c.lantern_write_index_keys(self.handle, byref(cache), byref(rows), c_void_p(stream)))

    def index_select(self, cache, step, args, stream):
        self.check(self.c.lantern_index_select(self.handle, byref(cache), byref(step), byref(args), c_void_p(stream)))

    def mla_decode(self, cache, step, args, stream):
        self.check(self.c.lantern_mla_decode(self.handle, byref(cache), byref(step), byref(args), c_void_p(stream)))
