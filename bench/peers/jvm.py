"""Redisson and Curator, in processes of their own: ``java/Racer.java``, with the versions of its pom.xml."""

from __future__ import annotations

import functools
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import TracebackType
from typing import Final, NamedTuple, Self

from tests.support.processes import end_child

REDISSON: Final = "Redisson (JVM)"
CURATOR: Final = "Curator (JVM)"

_PROJECT: Final = Path(__file__).parent / "java"
_LIBRARIES: Final = {REDISSON: "redisson", CURATOR: "curator"}
_DOWNLOAD_DEADLINE: Final = 300.0
#: Seconds of work before the first round.
_WARM_UP: Final = 3.0


class Pairs(NamedTuple):
    done: int
    cpu: float  #: seconds, of the whole process


def versions() -> dict[str, str]:
    """The pinned versions."""
    text = (_PROJECT / "pom.xml").read_text("utf-8")
    return dict(re.findall(r"<artifactId>(redisson|curator-recipes)</artifactId>\s*<version>([^<]+)<", text))


def missing(kind: str) -> list[str]:
    """A sentence that says why it cannot be measured here; empty if it can."""
    try:
        _classpath()
    except _Unavailable as reason:
        return [f"Not measured: {kind}; {reason}."]
    return []


@contextmanager
def racers(kind: str, address: str, processes: int, threads: int, *, quick: bool = False) -> Iterator[list[Racer]]:
    """JVMs that have compiled what they will run; none if it is missing."""
    with ExitStack() as stack:
        running = [] if missing(kind) else [stack.enter_context(Racer(kind, address)) for _ in range(processes)]
        for racer in running:
            racer.pairs("warm", threads, _WARM_UP if not quick else 0.1)
        yield running


class _Unavailable(Exception):
    """No JVM, no Maven, or no network."""


@functools.cache
def _classpath() -> str:
    for program in ("java", "mvn"):
        if shutil.which(program) is None:
            raise _Unavailable(f"{program} is not installed")
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as scratch:
        found = Path(scratch) / "classpath"
        command = ["mvn", "-q", "-B", "-f", str(_PROJECT / "pom.xml"), "dependency:build-classpath"]
        command.append(f"-Dmdep.outputFile={found}")
        try:
            subprocess.run(command, capture_output=True, timeout=_DOWNLOAD_DEADLINE, check=True)
        except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
            raise _Unavailable(f"Maven did not get its jars ({type(error).__name__})") from error
        return found.read_text("utf-8")


class Racer:
    """``with Racer(REDISSON, "127.0.0.1:6379") as racer:``: one process, whose main thread does what is asked."""

    def __init__(self, kind: str, address: str) -> None:
        command = ["java", "-Xmx512m", "-XX:+UseSerialGC", "-XX:-UsePerfData", "-cp", _classpath()]
        self._process = subprocess.Popen(
            [*command, str(_PROJECT / "Racer.java"), _LIBRARIES[kind], address],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            encoding="utf-8",
        )
        while self.answer() != "ready":
            pass  # a logger may have written to standard output

    def pairs(self, prefix: str, threads: int, seconds: float) -> Pairs:
        """``threads`` threads acquire and release for ``seconds``, each a name of its own."""
        self._send("pairs", prefix, str(threads), str(round(seconds * 1000)))
        count, cpu = self.answer().split("\t")
        return Pairs(int(count), int(cpu) / 1e9)

    def acquire(self, name: str) -> None:
        """Start to acquire it; :meth:`time` waits until it is held."""
        self._send("acquire", name)

    def release(self, name: str) -> None:
        """Start to release it; :meth:`time` returns when the release began."""
        self._send("release", name)

    def time(self) -> float:
        """Of the last command, on the clock of ``time.monotonic``."""
        return int(self.answer()) / 1e9

    def answer(self) -> str:
        assert self._process.stdout is not None
        if not (text := self._process.stdout.readline()):
            raise RuntimeError(f"the JVM ended with {self._process.wait()}")
        return text.rstrip("\n")

    def _send(self, *words: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write("\t".join(words) + "\n")
        self._process.stdin.flush()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        assert self._process.stdout is not None
        end_child(self._process)
        self._process.stdout.close()
