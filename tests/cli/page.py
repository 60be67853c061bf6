"""Takes a page apart, and runs its scripts in node or in Chromium."""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

CHROMIUMS = ("chromium", "chromium-browser", "google-chrome")
MISSING = "the scripts of the page need node or chromium to run: apt-get install nodejs (or chromium)"
IN_NODE = """
const fs = require("fs"), vm = require("vm");
vm.runInThisContext(fs.readFileSync(process.argv[1], "utf8"));
console.log(JSON.stringify(vm.runInThisContext("answer()")));
"""


def part(page: str, name: str) -> str:
    """The text of one script of the page."""
    found = re.search(rf'<script id="{name}"[^>]*>\n?(.*?)\n?</script>', page, re.DOTALL)
    assert found is not None, f"the page has no script {name}"
    return found.group(1)


def data(page: str, name: str) -> Any:
    """The data in one script of the page."""
    return json.loads(part(page, name))


def run_script(script: str, folder: Path) -> Any:
    """What `answer()` of a script returns. A number that JSON lacks comes back as None."""
    node, chromium = shutil.which("node"), chromium_path()
    assert node or chromium, MISSING
    if node is None:
        page = folder / "script.html"
        page.write_text(f"<pre id=out></pre><script>{script}\nout.textContent = JSON.stringify(answer());</script>", encoding="utf-8")
        found = re.search(r'<pre id="out">(.*?)</pre>', rendered(page, folder), re.DOTALL)
        assert found is not None
        return json.loads(html.unescape(found.group(1)))
    path = folder / "script.js"
    path.write_text(script, encoding="utf-8")
    done = subprocess.run([node, "-e", IN_NODE, str(path)], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def chromium_path() -> str | None:
    return next(filter(None, map(shutil.which, CHROMIUMS)), None)


def rendered(page: Path, folder: Path) -> str:
    """The document as it stands once the page's scripts have run in Chromium, without any network."""
    chromium = chromium_path()
    assert chromium is not None, MISSING
    flags = ("--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={folder / 'profile'}", "--virtual-time-budget=5000")
    offline = "--host-resolver-rules=MAP * ~NOTFOUND"
    done = subprocess.run([chromium, *flags, offline, "--dump-dom", page.as_uri()], capture_output=True, text=True, timeout=180)
    assert done.returncode == 0, done.stderr
    return done.stdout
