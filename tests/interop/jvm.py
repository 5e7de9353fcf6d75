"""A Java program of ours with another library's locks, which executes commands of the test.

Each folder beside this file has one: ``pom.xml`` pins the library, ``Contender.java`` is the program. Commands go to
its standard input, one in each text line, with fields separated by tabs. Answers begin with the id of the contender:
each has a thread of its own in Java.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import queue
import shutil
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Final, Generic, Self, TypeVar

import pytest

from tests.support.processes import end_child

_HERE: Final = Path(__file__).parent
#: Removed by ``make clean``.
_BUILT: Final = _HERE.parents[1] / "build" / "interop"
_TIMEOUT: Final = 45.0
_DOWNLOAD_DEADLINE: Final = 300.0


def build(project: str, scratch: Path, properties: Mapping[str, str] | None = None) -> str:
    """Returns the class path of the compiled program. Maven fetches what it needs; ``properties`` replace those of its
    pom.xml, such as the version of the library. Made once for all workers of a run, and again after a change."""
    folder = _HERE / project
    sources = b"".join((folder / name).read_bytes() for name in ("pom.xml", "Contender.java"))
    digest = hashlib.sha256(sources + repr(sorted((properties or {}).items())).encode()).hexdigest()
    built = _BUILT / f"{project}-{digest[:16]}"
    built.mkdir(parents=True, exist_ok=True)
    found = built / "classpath"
    with (built / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not found.exists() or not all(Path(jar).exists() for jar in found.read_text("utf-8").split(":")):
            _build(folder, scratch / "classpath", built, properties or {})
            shutil.move(scratch / "classpath", found)
    return f"{built}:{found.read_text('utf-8')}"


def _build(folder: Path, found: Path, built: Path, properties: Mapping[str, str]) -> None:
    maven = ["mvn", "-q", "-B", "-f", str(folder / "pom.xml"), "dependency:build-classpath"]
    maven += [f"-Dmdep.outputFile={found}", *(f"-D{name}={value}" for name, value in properties.items())]
    _run(maven)
    jars = found.read_text("utf-8")
    _run(["javac", "-encoding", "UTF-8", "-d", str(built), "-cp", jars, str(folder / "Contender.java")])


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=_DOWNLOAD_DEADLINE, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


#: Of a test: whether it has failed.
FAILED: Final = pytest.StashKey[bool]()
P = TypeVar("P", bound="Program")


class Shared(Generic[P]):
    """A process that tests use one after the other. One that a failed test has used is replaced: it may hold locks, and
    answers may be on their way."""

    def __init__(self, start: Callable[[], P]) -> None:
        self._start = start
        self._running = ExitStack()
        self._program: P | None = None

    def use(self, test: pytest.Item) -> Iterator[P]:
        program = self._program
        if program is None:
            program = self._program = self._start()
            self._running.enter_context(program)
        yield program
        if test.stash.get(FAILED, False):
            self.close()

    def close(self) -> None:
        self._program = None
        self._running.close()


class Program:
    """``with Program(classpath, "127.0.0.1:2181") as java:``. A contender is an id: any text without tabs."""

    def __init__(self, classpath: str, *arguments: str) -> None:
        command = [
            "java",
            "-Xmx256m",
            "-Xshare:auto",
            "-XX:TieredStopAtLevel=1",
            "-XX:+UseSerialGC",
            "-XX:-UsePerfData",
        ]
        self._process = subprocess.Popen(
            [*command, "-cp", classpath, "Contender", *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            encoding="utf-8",
        )
        self._answers: dict[str, queue.SimpleQueue[list[str]]] = {}
        self._reader = threading.Thread(target=self._read)
        self._reader.start()
        self.answer("ready")

    def send(self, *words: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write("\t".join(words) + "\n")
        self._process.stdin.flush()

    def answer(self, contender: str, within: float = _TIMEOUT) -> list[str]:
        """Waits for the next answer of this contender."""
        answer = self._answers_of(contender).get(timeout=within)
        assert answer[:1] != ["error"], f"in Java: {answer[1:]}"
        return answer

    def freeze(self) -> None:
        os.kill(self._process.pid, signal.SIGSTOP)

    def wake(self) -> None:
        os.kill(self._process.pid, signal.SIGCONT)

    def kill(self) -> None:
        """SIGKILL."""
        self._process.kill()
        self._process.wait(_TIMEOUT)

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            contender, *answer = line.rstrip("\n").split("\t")
            self._answers_of(contender).put(answer)

    def _answers_of(self, contender: str) -> queue.SimpleQueue[list[str]]:
        return self._answers.setdefault(contender, queue.SimpleQueue())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        assert self._process.stdout is not None
        end_child(self._process, _TIMEOUT)
        self._reader.join(_TIMEOUT)
        self._process.stdout.close()
