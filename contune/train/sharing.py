"""Several processes on one GPU. Left alone they take turns, even where one's kernels do not fill the device.

NVIDIA's multi-process service (MPS) runs their kernels side by side. Its daemon comes with the driver and is started
here for as long as the runs last, with a folder of its own, so that nobody else's processes notice.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory

CONTROL = "nvidia-cuda-mps-control"
PIPES, LOGS = "CUDA_MPS_PIPE_DIRECTORY", "CUDA_MPS_LOG_DIRECTORY"
USUAL_PIPES = Path("/tmp/nvidia-mps")  # where the service of a whole machine is found
SECONDS_TO_ANSWER = 30.0
FIRST_CONTEXT = """
import ctypes
cuda, device, context = ctypes.CDLL("libcuda.so.1"), ctypes.c_int(), ctypes.c_void_p()
failed = cuda.cuInit(0) or cuda.cuDeviceGet(ctypes.byref(device), 0)
raise SystemExit(failed or cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device))
"""
"""A program that does no more than to be served: without rights the service starts and serves nobody."""


@contextmanager
def side_by_side() -> Iterator[dict[str, str]]:
    """What to add to the environment of such processes; nothing where there is no service, or it runs already."""
    if PIPES in os.environ or USUAL_PIPES.exists() or shutil.which(CONTROL) is None:
        yield {}
        return
    with TemporaryDirectory(prefix="contune-mps-", ignore_cleanup_errors=True) as folder:
        environment = {PIPES: folder, LOGS: folder}
        started = _succeeds([CONTROL, "-d"], environment)
        try:
            yield environment if started and _succeeds([sys.executable, "-c", FIRST_CONTEXT], environment) else {}
        finally:
            if started:
                _succeeds([CONTROL], environment, "quit\n")


def _succeeds(command: list[str], environment: dict[str, str], line: str = "") -> bool:
    """In a session of its own: Ctrl-C is for the runs, which need the service to end well."""
    with suppress(OSError, subprocess.SubprocessError):
        ended = subprocess.run(
            command,
            env=os.environ | environment,
            input=line,
            text=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=SECONDS_TO_ANSWER,
            start_new_session=True,
        )
        return ended.returncode == 0
    return False
