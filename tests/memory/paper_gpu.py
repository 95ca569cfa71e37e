"""Graphics cards that exist on paper: llama.cpp assigns layers, caches and compute buffers to them as to real ones.

A backend is a set of C functions; these are Python's. They hand out addresses without memory behind them and forget
what is written there, so a model of any size "loads", and the log tells what would lie where. Nothing is ever computed.
The sizes follow ggml's CUDA backend: alignment, padding of quantized rows, and room for a cache converted to F16.
"""

from __future__ import annotations

import ctypes as c
import itertools
from typing import Any

import llama_cpp.llama_cpp

BACKEND_API_VERSION = 2
ALIGNMENT = 128
HOST_ALIGNMENT = 32
ROW_PADDING = 512
LEAST_OFFLOADED_BATCH = 32
_GPU = 1
_ADDRESSES = itertools.count(1 << 40, 1 << 41)
_BUFT = 11 * 8  # in a buffer: its type ...
_CONTEXT = 12 * 8  # ... and context, here the address that it pretends to have

_P = c.c_void_p


def _table(name: str, fields: str) -> type[c.Structure]:
    return type(name, (c.Structure,), {"_fields_": [(field, _P) for field in fields.split()]})


_BuftInterface = _table("_BuftInterface", "get_name alloc_buffer get_alignment get_max_size get_alloc_size is_host")
_BufferInterface = _table(
    "_BufferInterface",
    "free_buffer get_base init_tensor memset_tensor set_tensor get_tensor set_tensor_2d get_tensor_2d cpy_tensor "
    "clear reset",
)
_BackendInterface = _table(
    "_BackendInterface",
    "get_name free set_tensor_async get_tensor_async set_tensor_2d_async get_tensor_2d_async cpy_tensor_async "
    "synchronize graph_plan_create graph_plan_free graph_plan_update graph_plan_compute graph_compute "
    "event_record event_wait graph_optimize",
)
_DeviceInterface = _table(
    "_DeviceInterface",
    "get_name get_description get_memory get_type get_props init_backend get_buffer_type get_host_buffer_type "
    "buffer_from_host_ptr supports_op supports_buft offload_op event_new event_free event_synchronize",
)
_RegInterface = _table("_RegInterface", "get_name get_device_count get_device get_proc_address")


class _Buft(c.Structure):
    _fields_ = [("iface", _BuftInterface), ("device", _P), ("context", _P)]


class _Backend(c.Structure):
    _fields_ = [("guid", _P), ("iface", _BackendInterface), ("device", _P), ("context", _P)]


class _Device(c.Structure):
    _fields_ = [("iface", _DeviceInterface), ("reg", _P), ("context", _P)]


class _Reg(c.Structure):
    _fields_ = [("api_version", c.c_int), ("iface", _RegInterface), ("context", _P)]


class _Event(c.Structure):
    _fields_ = [("device", _P), ("context", _P)]


class _Capabilities(c.Structure):
    _fields_ = [
        (name, c.c_bool) for name in ("async_", "host_buffer", "buffer_from_host_ptr", "events", "mmap_support")
    ]


class _Properties(c.Structure):
    _fields_ = [
        ("name", c.c_char_p),
        ("description", c.c_char_p),
        ("memory_free", c.c_size_t),
        ("memory_total", c.c_size_t),
        ("type", c.c_int),
        ("device_id", c.c_char_p),
        ("capabilities", _Capabilities),
    ]


class _Tensor(c.Structure):
    pass


_Tensor._fields_ = [
    ("type", c.c_int),
    ("buffer", _P),
    ("ne", c.c_int64 * 4),
    ("nb", c.c_size_t * 4),
    ("op", c.c_int),
    ("op_params", c.c_int32 * 16),
    ("flags", c.c_int32),
    ("src", c.POINTER(_Tensor) * 10),
    ("view_src", c.POINTER(_Tensor)),
    ("view_offs", c.c_size_t),
]


class PaperGpus:
    """Cards named GPU0, GPU1 ... with so many free bytes each, known to llama.cpp for the rest of this process."""

    def __init__(self, *free_bytes: int) -> None:
        self._base = c.CDLL(None, handle=llama_cpp.llama_cpp._lib._handle)  # finds ggml's symbols too
        self._base.ggml_nbytes.restype = self._base.ggml_row_size.restype = c.c_size_t
        self._base.ggml_row_size.argtypes = [c.c_int, c.c_int64]
        self._base.ggml_op_name.restype = c.c_char_p
        self._base.ggml_is_quantized.restype = c.c_bool
        self._base.ggml_backend_buffer_init.restype = _P
        self._base.ggml_backend_buffer_init.argtypes = [_P, _BufferInterface, _P, c.c_size_t]
        self._kept: list[Any] = []  # callbacks and structures live as long as llama.cpp may use them
        register = self._base.ggml_backend_device_register
        register.argtypes = [_P]
        self._buffer_interface = self._make_buffer_interface()
        reg = _Reg(BACKEND_API_VERSION)
        reg.iface.get_name = self._text(b"PAPER")
        reg.iface.get_proc_address = self._function(_P, [_P, c.c_char_p], lambda *_: None)
        self._keep(reg)
        for number, free in enumerate(free_bytes):
            register(self._device(b"GPU%d" % number, free, c.addressof(reg)))

    def _keep(self, thing: Any) -> Any:
        self._kept.append(thing)
        return thing

    def _function(self, result: Any, arguments: list[Any], body: Any) -> Any:
        return c.cast(self._keep(c.CFUNCTYPE(result, *arguments)(body)), _P)

    def _text(self, text: bytes) -> Any:
        """A function that returns the text."""
        address = c.addressof(self._keep(c.create_string_buffer(text)))
        return self._function(_P, [_P], lambda _: address)

    def _make_buffer_interface(self) -> Any:
        """Buffers with an address of their own, and nothing behind it."""
        table = _BufferInterface()
        ignore = self._function
        table.free_buffer = ignore(None, [_P], lambda *_: None)
        table.get_base = self._function(_P, [_P], lambda buffer: _P.from_address(buffer + _CONTEXT).value)
        table.memset_tensor = ignore(None, [_P, _P, c.c_uint8, c.c_size_t, c.c_size_t], lambda *_: None)
        table.set_tensor = ignore(None, [_P, _P, _P, c.c_size_t, c.c_size_t], lambda *_: None)
        table.get_tensor = ignore(None, [_P, _P, _P, c.c_size_t, c.c_size_t], lambda *_: None)
        table.clear = ignore(None, [_P, c.c_uint8], lambda *_: None)
        return table

    def _device(self, name: bytes, free: int, reg: int) -> int:
        device = self._keep(_Device(reg=reg))
        address = c.addressof(device)
        buft, host_buft = self._buft(name, address), self._host_buft(name + b"_Host", address)

        def properties(_: int, pointer: Any) -> None:
            pointer[0] = _Properties(
                name, b"A card on paper", free, free, _GPU, None, _Capabilities(True, True, False, True, True)
            )

        def memory(_: int, free_pointer: Any, total_pointer: Any) -> None:
            free_pointer[0] = total_pointer[0] = free

        def new_event(_: int) -> int:
            return c.addressof(self._keep(_Event(address)))

        i = device.iface
        i.get_name = i.get_description = self._text(name)
        i.get_memory = self._function(None, [_P, c.POINTER(c.c_size_t), c.POINTER(c.c_size_t)], memory)
        i.get_type = self._function(c.c_int, [_P], lambda _: _GPU)
        i.get_props = self._function(None, [_P, c.POINTER(_Properties)], properties)
        i.init_backend = self._function(_P, [_P, c.c_char_p], lambda *_: self._backend(name, address))
        i.get_buffer_type = self._function(_P, [_P], lambda _: buft)
        i.get_host_buffer_type = self._function(_P, [_P], lambda _: host_buft)
        i.supports_op = self._function(c.c_bool, [_P, _P], lambda *_: True)
        i.supports_buft = self._function(c.c_bool, [_P, _P], lambda _, other: other == buft)
        i.offload_op = self._function(c.c_bool, [_P, c.POINTER(_Tensor)], lambda _, op: self._wants(op[0]))
        i.event_new = self._function(_P, [_P], new_event)
        i.event_free = self._function(None, [_P, _P], lambda *_: None)
        i.event_synchronize = self._function(None, [_P, _P], lambda *_: None)
        return address

    def _buft(self, name: bytes, device: int) -> int:
        buft = self._keep(_Buft(device=device))
        address = c.addressof(buft)

        def allocate(_: int, size: int) -> int:
            return self._base.ggml_backend_buffer_init(address, self._buffer_interface, next(_ADDRESSES), size)

        buft.iface.get_name = self._text(name)
        buft.iface.alloc_buffer = self._function(_P, [_P, c.c_size_t], allocate)
        buft.iface.get_alignment = self._function(c.c_size_t, [_P], lambda _: ALIGNMENT)
        buft.iface.get_alloc_size = self._function(c.c_size_t, [_P, c.POINTER(_Tensor)], lambda _, t: self._size(t))
        return address

    def _host_buft(self, name: bytes, device: int) -> int:
        """System memory that a card can read: real memory of the CPU, by another name."""
        buft = self._keep(_Buft(device=device))
        address = c.addressof(buft)
        self._base.ggml_backend_cpu_buffer_type.restype = self._base.ggml_backend_buft_alloc_buffer.restype = _P
        self._base.ggml_backend_buft_alloc_buffer.argtypes = [_P, c.c_size_t]
        cpu = self._base.ggml_backend_cpu_buffer_type()

        def allocate(_: int, size: int) -> int:
            buffer: int = self._base.ggml_backend_buft_alloc_buffer(cpu, size)
            _P.from_address(buffer + _BUFT).value = address
            return buffer

        buft.iface.get_name = self._text(name)
        buft.iface.alloc_buffer = self._function(_P, [_P, c.c_size_t], allocate)
        buft.iface.get_alignment = self._function(c.c_size_t, [_P], lambda _: HOST_ALIGNMENT)
        buft.iface.is_host = self._function(c.c_bool, [_P], lambda _: True)
        return address

    def _backend(self, name: bytes, device: int) -> int:
        guid = self._keep((c.c_uint8 * 16)(*range(16)))
        backend = self._keep(_Backend(c.addressof(guid), device=device))
        backend.iface.get_name = self._text(name)
        for field in ("free", "synchronize"):
            setattr(backend.iface, field, self._function(None, [_P], lambda _: None))
        for field in ("event_record", "event_wait"):
            setattr(backend.iface, field, self._function(None, [_P, _P], lambda *_: None))
        return c.addressof(backend)

    def _wants(self, op: _Tensor) -> bool:
        """Whether it takes over an operation whose weights are in host memory: for large batches only."""
        name = self._base.ggml_op_name(op.op)
        rows = {b"GET_ROWS": 0, b"MUL_MAT": op.ne[1], b"MUL_MAT_ID": op.ne[2], b"ROPE": op.ne[2]}
        return rows.get(name, op.ne[1] * op.ne[2] * op.ne[3]) >= LEAST_OFFLOADED_BATCH

    def _size(self, pointer: Any) -> int:
        tensor = pointer[0]
        size: int = self._base.ggml_nbytes(pointer)
        if self._base.ggml_op_name(tensor.op) == b"FLASH_ATTN_EXT":
            key, value = tensor.src[1], tensor.src[2]
            shared = bool(value[0].view_src) and c.addressof(value[0].view_src[0]) in {
                c.addressof(key[0]),
                c.addressof(key[0].view_src[0]) if key[0].view_src else 0,
            }
            for cache in (key,) if shared else (key, value):
                if cache[0].type != 1:
                    size = (
                        -(-size // ALIGNMENT) * ALIGNMENT
                        + 2 * cache[0].ne[0] * cache[0].ne[1] * cache[0].ne[2] * cache[0].ne[3]
                    )
        if self._base.ggml_is_quantized(tensor.type) and tensor.ne[0] % ROW_PADDING:
            size += self._base.ggml_row_size(tensor.type, ROW_PADDING - tensor.ne[0] % ROW_PADDING)
        return size
