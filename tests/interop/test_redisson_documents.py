"""The Java code in the documents compiles with each version of Redisson."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Final

import pytest

from tests.docs.markdown import ROOT, blocks

if not os.environ.get("INTEROP"):
    pytest.skip("INTEROP is not set", allow_module_level=True)

pytestmark = [pytest.mark.timeout(400), pytest.mark.essential]  # the first run downloads the jars

DOCUMENT: Final = ROOT / "docs" / "how-to" / "share-with-redisson.md"
CLASS: Final = """\
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import org.redisson.RedissonRedLock;
import org.redisson.api.*;

abstract class Document {
    RedissonClient redisson;
    List<RedissonClient> servers;
    Map<String, Long> store;
    String item;
    abstract void read();
    abstract void write();
    abstract void use();
    abstract void move();
    abstract void change();
"""


def test_java_code_of_the_how_to_compiles(redisson_jars: str, tmp_path: Path) -> None:
    found = [block for block in blocks(DOCUMENT) if block.language == "java"]
    assert len(found) >= 6
    methods = [f"void line{block.line}() throws Exception {{\n{block.text}}}\n" for block in found]
    source = tmp_path / "Document.java"
    source.write_text(CLASS + "".join(methods) + "}\n", "utf-8")
    command = ["javac", "-encoding", "UTF-8", "-d", str(tmp_path), "-cp", redisson_jars, str(source)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
