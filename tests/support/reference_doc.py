"""The pages that programs write; `python -m tests.support.reference_doc` (`make reference`) renews them all."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from tests.support import commands_doc, effects_doc, errors_doc, nodes_doc, operating_doc, settings_doc, telemetry_doc

DOCS = Path(__file__).parents[2] / "docs"
PAGES: Mapping[Path, Callable[[], str]] = {
    DOCS / "reference" / "commands.md": commands_doc.page,
    DOCS / "reference" / "errors.md": errors_doc.page,
    DOCS / "reference" / "nodes.md": nodes_doc.page,
    settings_doc.DOC: settings_doc.page,
    operating_doc.DOC: lambda: operating_doc.renewed(operating_doc.DOC.read_text(encoding="utf-8")),
    telemetry_doc.DOC: lambda: telemetry_doc.renewed(telemetry_doc.DOC.read_text(encoding="utf-8")),
    effects_doc.DOC: lambda: effects_doc.renewed(effects_doc.DOC.read_text(encoding="utf-8")),
}
"""What each page has to be."""

if __name__ == "__main__":
    for file, page in PAGES.items():
        file.write_text(page(), encoding="utf-8")
