# SPDX-License-Identifier: MIT OR Apache-2.0
"""The table that the backend prints when a program ends."""

TITLE = "ROCKET statistics:"
COMPUTED = "matmuls computed in "
FAILED = "graphs failed"
HANDED_OVER = "lists handed to the CPU"
AGAIN = "jobs run again"
# Attention that the guard of its scores sent to the CPU.
OUT_OF_RANGE = "attention nodes that the CPU computed (large scores)"
# What a run without a fault has none of.
FAULTS = [FAILED, HANDED_OVER, AGAIN]
# Weights whose buffer the backend does not watch: only a host that makes buffers before it loads the
# backend has some.
UNSEEN = "weights in a buffer made before this backend was loaded"
MEASURED = ["thread-ms waiting for jobs (measured)", "NPU ms, with jobs submitted (measured)"]
TIMES = [
    "thread-ms packing weights (measured)",
    "thread-ms packing activations (measured)",
    "thread-ms unpacking outputs (measured)",
    "NPU ms, matmul by matmul, likely (modelled)",
]


def device_name(is_model: bool) -> str:
    """The device's name in ggml's lists, which follows from what it is."""
    return "ROCKET-MODEL0" if is_model else "ROCKET0"


class Stats(dict[str, float]):
    """Each row's number by its name; zero where there is no such row."""

    def __init__(self, stderr: str):
        _, found, self.text = stderr.rpartition(TITLE)
        assert found, "the backend printed no statistics: was it loaded?"
        title, *rows = self.text.splitlines()
        self.device = title.strip()
        for row in rows:
            name, _, value = row.strip().rpartition(" ")
            try:
                super().setdefault(name.strip(), float(value))
            except ValueError:
                pass  # a note, or another program's line

    def __missing__(self, name: str) -> float:
        return 0

    @property
    def is_model(self) -> bool:
        return self.device.startswith("software model")

    @property
    def name(self) -> str:
        return device_name(self.is_model)

    def check_no_fault(self) -> None:
        """Nothing failed, and nothing was computed a second time."""
        assert not any(self[row] for row in FAULTS), self.text

    def check_all_seen(self) -> None:
        """The backend watched the buffers of all weights."""
        assert UNSEEN not in self.text, self.text

    @property
    def computed(self) -> dict[str, int]:
        """Matmuls by the precisions that they were computed in. None may have failed."""
        assert not self[FAILED], self.text
        rows = ((k.removeprefix(COMPUTED), int(v)) for k, v in self.items() if COMPUTED in k)
        return {precision: matmuls for precision, matmuls in rows if matmuls}

    @property
    def matmuls(self) -> int:
        return sum(self.computed.values())

    @property
    def attention(self) -> int:
        """Nodes of attention that were computed."""
        assert not self[FAILED], self.text
        return int(self["attention nodes computed"])

    def offloaded(self, precision: str = "") -> int:
        """The number of matmuls, in `precision` or any: at least one, with a job behind it."""
        matmuls = self.computed.get(precision, 0) if precision else self.matmuls
        assert matmuls and self["jobs"] > 0, f"no matmul in {precision or 'any'}:\n{self.text}"
        return matmuls

    def check_times(self) -> None:
        """There was time in each part of the work: what a device did is measured on a real one, and
        modelled anyway."""
        rows = TIMES + ([] if self.is_model else MEASURED)
        assert all(0 < self[row] < float("inf") for row in rows), self.text
        assert not self.is_model or not any(row in self for row in MEASURED), self.text
