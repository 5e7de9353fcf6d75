"""A Java process with Curator's recipes that executes commands of the test: see ``curator/Contender.java``."""

from __future__ import annotations

import os
import queue
import subprocess
import threading
from pathlib import Path
from types import TracebackType
from typing import Final, Literal, NamedTuple, Self

PROJECT: Final = Path(__file__).parent / "curator"
#: Another Curator version to test with, such as 5.4.0; by default the version in pom.xml.
CURATOR: Final = os.environ.get("CURATOR_VERSION")

_TIMEOUT: Final = 20.0
_DOWNLOAD_DEADLINE: Final = 300.0


def classpath(scratch: Path) -> str:
    """Returns the jars that the project needs, fetched by Maven if necessary."""
    found = scratch / "classpath"
    command = ["mvn", "-q", "-B", "-f", str(PROJECT / "pom.xml"), "dependency:build-classpath"]
    command += [f"-Dmdep.outputFile={found}", *([f"-Dcurator.version={CURATOR}"] if CURATOR else [])]
    done = subprocess.run(command, capture_output=True, text=True, timeout=_DOWNLOAD_DEADLINE, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return found.read_text("utf-8")


Recipe = Literal["mutex", "read", "write", "permits"]


class Held(NamedTuple):
    at: float  #: on the clock of ``time.monotonic``, which Java shares
    czxid: int  #: of a mutex; else 0
    node: str


class Java:
    """``with Java(classpath, "127.0.0.1:2181") as java:``. A contender is an id: any text."""

    def __init__(self, classpath: str, hosts: str, *, session: float = 10.0) -> None:
        command = ["java", "-Xmx128m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-XX:-UsePerfData"]
        command += ["-cp", classpath, str(PROJECT / "Contender.java"), hosts, str(round(session * 1000))]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, encoding="utf-8"
        )
        self._answers: dict[str, queue.SimpleQueue[list[str]]] = {}
        self._reader = threading.Thread(target=self._read)
        self._reader.start()
        self._answer("ready")

    # ---- commands

    def acquire(
        self,
        contender: str,
        path: str,
        *,
        timeout: float | None = None,
        recipe: Recipe = "mutex",
        size: int = 0,
    ) -> None:
        """Starts to acquire the lock without waiting: ``held`` waits. ``size`` of a semaphore; 0: as its node says."""
        limit = "-1" if timeout is None else str(round(timeout * 1000))
        self._send("acquire", contender, path, limit, recipe, str(size))

    def held(self, contender: str) -> Held | None:
        """Waits until the contender has the lock; None if it timed out."""
        kind, *facts = self._answer(contender)
        if kind == "busy":
            return None
        at, czxid, node = facts
        return Held(int(at) / 1e9, int(czxid), node)

    def release(self, contender: str, recipe: Recipe = "mutex") -> float:
        """Releases the lock and returns the time at which the release began."""
        self._send("release", contender, recipe)
        return int(self._answer(contender)[1]) / 1e9

    def count(self, contender: str, path: str, file: Path, rounds: int) -> None:
        """Adds ``rounds`` to the number in the file, each time under the lock; ``counted`` waits."""
        self._send("count", contender, path, str(file), str(rounds))

    def counted(self, contender: str) -> None:
        self._answer(contender)

    def participants(self, path: str) -> list[str]:
        """Returns the participants in the queue, as Curator sees them."""
        self._send("participants", "operator", path)
        return [node for node in self._answer("operator")[1:] if node]

    def revoke(self, node: str) -> None:
        """Asks the owner of the node to give it up, like Curator's Revoker."""
        self._send("revoke", "operator", node)
        self._answer("operator")

    def kill(self) -> None:
        """SIGKILL."""
        self._process.kill()
        self._process.wait(_TIMEOUT)

    # ---- internals

    def _send(self, *words: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write("\t".join(words) + "\n")
        self._process.stdin.flush()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            contender, *answer = line.rstrip("\n").split("\t")
            self._answers_of(contender).put(answer)

    def _answers_of(self, contender: str) -> queue.SimpleQueue[list[str]]:
        return self._answers.setdefault(contender, queue.SimpleQueue())

    def _answer(self, contender: str) -> list[str]:
        answer = self._answers_of(contender).get(timeout=_TIMEOUT)
        assert answer[:1] != ["error"], f"in Java: {answer[1:]}"
        return answer

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        try:
            self._process.wait(_TIMEOUT)
        except subprocess.TimeoutExpired:
            self.kill()
        self._reader.join(_TIMEOUT)
        self._process.stdout.close()
