"""Takes AMX away from this process, so that an AMX machine can also race the class of machines
without it.

Tile registers must be asked for from the kernel (arch_prctl ARCH_REQ_XCOMP_PERM) before the first
use, and every library asks and falls back when the answer is no. A seccomp filter makes it no. That
limits ONNX Runtime and OpenVINO too, which have no switch for it; oneDNN's own switch is set as
well, which keeps it from what a CPU of that class lacks besides: fp16, and bf16 in the class without it.
"""

import ctypes
import errno
import os
import platform
import struct

SYS_ARCH_PRCTL = 158
ARCH_REQ_XCOMP_PERM = 0x1023
XFEATURE_XTILEDATA = 18
AUDIT_ARCH_X86_64 = 0xC000003E
PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP, SECCOMP_MODE_FILTER = 38, 22, 2
LOAD, JUMP_EQUAL, RETURN = 0x20, 0x15, 0x06
ALLOW, REFUSE = 0x7FFF0000, 0x00050000 | errno.EPERM


def without_amx(onednn):
    """Call before any engine is imported; onednn is the most that oneDNN may use. Raises OSError when AMX
    could still be had afterwards."""
    os.environ["ONEDNN_MAX_CPU_ISA"] = onednn
    if platform.machine() != "x86_64":
        return
    step = struct.Struct("HBBI").pack
    program = b"".join(
        (
            step(LOAD, 0, 0, 4),  # the call's architecture
            step(JUMP_EQUAL, 0, 5, AUDIT_ARCH_X86_64),
            step(LOAD, 0, 0, 0),  # its number
            step(JUMP_EQUAL, 0, 3, SYS_ARCH_PRCTL),
            step(LOAD, 0, 0, 16),  # its first argument
            step(JUMP_EQUAL, 0, 1, ARCH_REQ_XCOMP_PERM),
            step(RETURN, 0, 0, REFUSE),
            step(RETURN, 0, 0, ALLOW),
        )
    )

    class Program(ctypes.Structure):
        _fields_ = [("length", ctypes.c_ushort), ("steps", ctypes.c_void_p)]

    libc = ctypes.CDLL(None, use_errno=True)
    steps = ctypes.create_string_buffer(program)
    filter_ = Program(len(program) // 8, ctypes.addressof(steps))
    if libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) or libc.prctl(
        PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.byref(filter_), 0, 0
    ):
        raise OSError(ctypes.get_errno(),
                      "a seccomp filter could not be installed: AMX cannot be taken away here")
    if libc.syscall(SYS_ARCH_PRCTL, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA) == 0:
        raise OSError(errno.EPERM, "AMX is still granted: this machine cannot show the class without it")
