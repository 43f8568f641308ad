"""What only the GPU image must do: say that there is no driver, and find one where the container
toolkit puts it."""

from container import Container
from dockerfile import Broken

# Where the toolkit binds the driver's library in an image of Debian's, by the name that the server looks for.
DRIVER = "/usr/lib/x86_64-linux-gnu/libcuda.so.1"


def check(image, standin):
    """standin is the tests' driver, which stands in for NVIDIA's. Returns what was seen."""
    program = image.entrypoint
    with Container(image) as c:
        status, text = c.run(*program, "serve", "--device", "cuda")
        if status == 0 or "libcuda.so.1" not in text or "--gpus all" not in text:
            raise Broken(
                f"serve --device cuda without a driver ended with {status} and said: {text.strip()[-600:]}")
        status, text = c.run(*program, "doctor")
        if status or "no CUDA driver" not in text:
            raise Broken(f"doctor without a driver ended with {status} and said: {text.strip()[-600:]}")
    if not standin.is_file():
        return "no driver was put into it, for build/standin/libcuda.so.1 is not built"
    with Container(image, volumes={DRIVER: standin}) as c:
        status, text = c.run(*program, "doctor", "--device", "cpu")
        if status or "cuda:0" not in text:
            raise Broken(
                f"doctor with a driver at {DRIVER} ended with {status} and shows no cuda:0: {text.strip()[-600:]}")
    return "without a driver it says so, and finds one where the container toolkit puts it"
