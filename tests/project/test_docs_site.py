"""The documentation as a site and in the repository: every page has its place, and no link leads nowhere."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

NAV_ENTRY = re.compile(r"^ +- (?:[^:\n]+: )?(\S+\.md)$", re.MULTILINE)
CODE = re.compile(r"^```.*?^```$|`[^`\n]*`", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+ +(.+?)$", re.MULTILINE)
README_WORDS = 1000


def nav(root: Path) -> list[str]:
    """The pages that mkdocs.yml names."""
    text = (root / "mkdocs.yml").read_text("utf-8")
    begin = text.index("\nnav:")
    return NAV_ENTRY.findall(text[begin : text.index("\nmarkdown_extensions:", begin)])


def pages(root: Path) -> Iterator[Path]:
    yield from sorted((root / "docs").rglob("*.md"))
    yield from (root / "README.md", root / "CONTRIBUTING.md")


def anchors(text: str) -> set[str]:
    """Of a page's headings, as the site and code hosts make them: words in lower case, joined by hyphens."""
    words = (re.sub(r"[^\w\s-]", "", heading).strip().lower() for heading in HEADING.findall(text))
    return {re.sub(r"\s", "-", each) for each in words}


def dead_links(page: Path, text: str) -> Iterator[str]:
    """Links of a page to files and headings that are not there."""
    for link in LINK.findall(CODE.sub("", text)):
        if "://" in link:
            continue
        file, _, anchor = link.partition("#")
        target = page.parent / file
        if file and not target.exists():
            yield f"{page.name}: {link}: there is no such file"
        elif anchor and anchor not in anchors(target.read_text("utf-8") if file else text):
            yield f"{page.name}: {link}: there is no such heading"


def test_every_page_has_one_place_in_the_navigation(root: Path) -> None:
    there = [path.relative_to(root / "docs").as_posix() for path in (root / "docs").rglob("*.md")]
    assert sorted(nav(root)) == sorted(there)


def test_no_link_leads_nowhere(root: Path) -> None:
    found = [dead for page in pages(root) for dead in dead_links(page, page.read_text("utf-8"))]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    "text", ["[a](gone.md)", "![a](gone.svg)", "[a](#gone)\n# Here", "[a](limits.md#gone)", "[a](gone.md#x)"]
)
def test_a_dead_link_is_found(root: Path, text: str) -> None:
    assert list(dead_links(root / "docs" / "page.md", text))


@pytest.mark.parametrize("text", ["[a](limits.md)", "[a](#here-it-is)\n## Here: it is", "`[a](gone.md)`"])
def test_a_living_link_is_left_alone(root: Path, text: str) -> None:
    assert not list(dead_links(root / "docs" / "page.md", text))


def test_the_readme_is_short(root: Path) -> None:
    assert len((root / "README.md").read_text("utf-8").split()) <= README_WORDS
