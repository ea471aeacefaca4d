"""Writes Data Docs: a site for each evaluation of a check, the newest of which are kept.

Great Expectations compiles its templates for each page again, which costs more than all else of a check: here they are compiled once.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from great_expectations.render.view.view import DefaultJinjaIndexPageView, DefaultJinjaPageView
from jinja2.bccache import Bucket, BytecodeCache

from ebbtide.storage.rights import make_private


class _Compiled(BytecodeCache):
    """Keeps compiled templates in this process."""

    def __init__(self) -> None:
        self._codes: dict[str, bytes] = {}

    def load_bytecode(self, bucket: Bucket) -> None:
        """Give a template's code, if it was compiled before."""
        code = self._codes.get(bucket.key)
        if code is not None:
            bucket.bytecode_from_string(code)

    def dump_bytecode(self, bucket: Bucket) -> None:
        """Keep a template's code."""
        self._codes[bucket.key] = bucket.bytecode_to_string()


_COMPILED = _Compiled()


class PageView(DefaultJinjaPageView):
    """Writes a page by templates that are compiled once."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.env.bytecode_cache = _COMPILED


class IndexPageView(DefaultJinjaIndexPageView):
    """Writes the index by templates that are compiled once."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.env.bytecode_cache = _COMPILED


def write_docs(context: Any, docs: Path, keep: int) -> Path:
    """Write the site of an evaluation; return its index.

    Args:
        context: Great Expectations' context, with the results.
        docs: Local folder of the check's sites.
        keep: Sites kept there; older ones are deleted.
    """
    make_private(str(docs))
    sites = sorted(docs.glob("[0-9]*"))
    n_too_many = len(sites) + 1 - keep
    for old in sites[: max(0, n_too_many)]:
        shutil.rmtree(old)
    newest = int(sites[-1].name) if sites else 0
    site = docs / f"{newest + 1:06d}"
    page = {"view": {"module_name": __name__, "class_name": "PageView"}}
    index = {"view": {"module_name": __name__, "class_name": "IndexPageView"}}
    builder = {
        "class_name": "SiteBuilder",
        "site_index_builder": {"class_name": "DefaultSiteIndexBuilder", **index},
        "site_section_builders": {"expectations": page, "validations": page, "profiling": "None"},
        "store_backend": {"class_name": "TupleFilesystemStoreBackend", "base_directory": str(site)},
    }
    context.add_data_docs_site("site", builder)
    context.build_data_docs(site_names=["site"])
    return site / "index.html"
