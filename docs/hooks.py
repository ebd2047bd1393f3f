"""Pages that MkDocs makes while it builds: one for each command, and the measurements.

None of them is committed, so none can be out of date.
"""

from __future__ import annotations

import os
import re
import sys
import tempfile
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))
import command_pages  # noqa: E402
import measured  # noqa: E402

from zerolm.verbs import commands  # noqa: E402

MEASUREMENTS = HERE.parent / "benchmarks"
PLACES = {"benchmarks/": "measurements/", "CONTRIBUTING": "contributing"}
"""Where files of the repository that are not below ``docs/`` stand on the site."""
BOOSTS = {
    "tutorials/": 2,
    "measurements/": 0.005,
    **dict.fromkeys(("bits.md", "experts.md", "healing.md", "vocabulary.md"), 2),
    **dict.fromkeys(("evidence.md", "comparison.md", "labels.md"), 0.5),
}
"""What a search finds first and last: the many words of measurements match anything."""
QUIET = "c = get_config()\nc.IPKernelApp.log_level = 40\n"
"""The kernels of notebooks warn, else, of sockets that others on this machine may read."""


def on_startup(**_: Any) -> None:
    """Give the kernels of notebooks a configuration of their own, in which they do not warn of widgets."""
    profile = Path(tempfile.mkdtemp()) / "profile_default"
    profile.mkdir()
    (profile / "ipython_kernel_config.py").write_text(QUIET)
    os.environ["IPYTHONDIR"] = str(profile.parent)
    os.environ["PYTHONWARNINGS"] = "ignore:IProgress not found"


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """List the pages of the commands in the navigation."""
    names = ["index", *(name for name in command_pages.pages() if name != "index")]
    for part in config.nav or ():
        if isinstance(part, dict) and "Reference" in part:
            part["Reference"][0] = {"Commands": [f"commands/{name}.md" for name in names]}
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the generated pages."""
    pages = {f"commands/{name}.md": text for name, text in command_pages.pages().items()}
    pages |= {f"measurements/{file.name}": file.read_text("utf-8") for file in MEASUREMENTS.glob("*.md")}
    pages["contributing.md"] = (HERE.parent / "CONTRIBUTING.md").read_text("utf-8").replace("](docs/", "](")
    for place, text in pages.items():
        files.append(File.generated(config, place, content=text))
    return files


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """Leave out what is for tests, weigh a page for the search, lead links to files to their pages here."""
    markdown = re.sub(r"^(```\w+)(?: (?:data|torch|sentences|varies))+$", r"\1", markdown, flags=re.MULTILINE)
    markdown = measured.COMMENT.sub("", markdown)
    calls = {command_pages.function(name) for name in commands()}
    markdown = re.sub(
        r"^::: ([\w.]+)$",
        lambda call: command_pages.described(call[1]) if call[1] in calls else call[0],
        markdown,
        flags=re.MULTILINE,
    )
    for folder, boost in BOOSTS.items():
        if page.file.src_uri.startswith(folder):
            page.meta["search"] = {"boost": boost}
    up = "../" * page.file.src_uri.count("/")
    return re.sub(rf"\]\((?:\.\./)+({'|'.join(PLACES)})", lambda link: f"]({up}{PLACES[link[1]]}", markdown)


def on_post_page(output: str, **_: Any) -> str:
    """Give the theme's search dialog a name."""
    dialog = 'data-md-component="search" role="dialog"'
    return output.replace(dialog, f'{dialog} aria-label="Search"', 1)


def on_page_content(html: str, page: Page, **_: Any) -> str:
    """Lead links of notebooks, which MkDocs leaves as they are, to pages; a table's corner is no head."""
    if page.file.src_uri.endswith(".ipynb"):
        html = re.sub(r'(href="\.\./[\w/-]+)\.md', r"\1.html", html)
        return html.replace("<th></th>", "<td></td>")
    return html
