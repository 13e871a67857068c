"""Chromium: this machine's own, or Debian's, fetched and unpacked as the servers are."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from tests.servers.packages import PackageSet, library_dirs, unpacked

CHROMIUM = PackageSet("chromium", "bookworm", ("chromium", "fonts-liberation"))
if TYPE_CHECKING:
    from playwright.sync_api import Browser as Started
    from playwright.sync_api import Page

_OWN_LIBC = ("libc.so.6", "libpthread.so.0", "libm.so.6", "libdl.so.2", "librt.so.1")
_FONTS = """\
<?xml version="1.0"?>
<!DOCTYPE fontconfig SYSTEM "fonts.dtd">
<fontconfig><dir>{root}/usr/share/fonts</dir><cachedir>{root}/fonts-cache</cachedir></fontconfig>
"""
SHOTS = os.environ.get("CDC_SCREENSHOTS", "")
"""A folder for pictures of what is to be seen, for people to look at; none are kept without it."""
ARGUMENTS = ("--no-sandbox", "--disable-gpu", "--disable-quic", "--disable-dev-shm-usage")


@dataclass(frozen=True, slots=True)
class Browser:
    """How to start it."""

    program: str
    environment: dict[str, str | float | bool] = field(default_factory=dict)


def chromium() -> Browser:
    """Find or fetch it; `PackagesUnavailableError` says why there is none."""
    installed = shutil.which("chromium")
    if installed is not None:
        return Browser(installed, {**os.environ})
    root = unpacked(CHROMIUM)
    _, folders = library_dirs(root)
    for folder in folders:
        for name in _OWN_LIBC:  # the C library is the machine's own, whose loader starts it
            (folder / name).unlink(missing_ok=True)
    folders += [folder / "pulseaudio" for folder in folders]
    fonts = root / "fonts.conf"
    fonts.write_text(_FONTS.format(root=root), encoding="utf-8")
    environment: dict[str, str | float | bool] = {
        **os.environ,
        "LD_LIBRARY_PATH": ":".join(map(str, folders)),
        "FONTCONFIG_FILE": str(fonts),
    }
    return Browser(str(_program(root)), environment)


@contextmanager
def started() -> Iterator[Started]:
    """Start it without a window; it is ended with the block, whatever happened there."""
    from playwright.sync_api import sync_playwright  # noqa: PLC0415 - starts its own helper

    found = chromium()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=found.program, env=found.environment, args=list(ARGUMENTS)
        )
        try:
            yield browser
        finally:
            browser.close()


def shot(tab: Page, name: str) -> None:
    """Keep what is to be seen in the folder `CDC_SCREENSHOTS`, where somebody wants to look."""
    if SHOTS:
        tab.wait_for_timeout(400)
        tab.screenshot(path=f"{SHOTS}/{name}.png", full_page=True)


def _program(root: Path) -> Path:
    return root / "usr/lib/chromium/chromium"
