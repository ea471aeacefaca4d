"""Writes Data Docs: a site for each evaluation of a check; the newest are kept.

Great Expectations compiles its templates again for each page, the main cost of a check. Here they are compiled once.
"""

from __future__ import annotations

import html
import json
import shutil
from pathlib import Path
from typing import Any

from great_expectations.render.components import RenderedComponentContent
from great_expectations.render.view.view import DefaultJinjaIndexPageView, DefaultJinjaPageView
from jinja2 import pass_context
from jinja2.bccache import Bucket, BytecodeCache

from ebbtide.storage import Location


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
    """Writes a page by templates that are compiled once. Texts of a cell or a list are values of records: they are escaped, and no HTML."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.env.bytecode_cache = _COMPILED
        self.env.filters["render_content_block"] = self.render_content_block

    @pass_context
    def render_content_block(self, jinja_context: Any, content_block: Any, *arguments: Any, **named: Any) -> Any:
        """Render a block like Great Expectations; other content is shown unchanged."""
        if isinstance(content_block, list):
            content_block = [each if _is_block(each) else html.escape(str(each)) for each in content_block]
        elif content_block is not None and not _is_block(content_block):
            return html.escape(str(content_block))
        return super().render_content_block(jinja_context, content_block, *arguments, **named)


class IndexPageView(DefaultJinjaIndexPageView):
    """Writes the index by templates that are compiled once."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.env.bytecode_cache = _COMPILED


def _is_block(content: Any) -> bool:
    is_described = isinstance(content, dict) and content.get("content_block_type") is not None
    return is_described or isinstance(content, RenderedComponentContent)


def as_shown(found: dict[str, Any]) -> dict[str, Any]:
    """Return the result of an expectation for Data Docs: values that are objects or lists as JSON, for such an object could be a block.

    Args:
        found: The result.
    """
    shown = dict(found)
    for name in ("unexpected_list", "partial_unexpected_list"):
        if isinstance(found.get(name), list):
            shown[name] = [_value_shown(value) for value in found[name]]
    counts = found.get("partial_unexpected_counts")
    if isinstance(counts, list):
        shown["partial_unexpected_counts"] = [{**count, "value": _text_of(count.get("value"))} for count in counts]
    observed = found.get("observed_value")
    if isinstance(observed, list):
        shown["observed_value"] = [_text_of(value) for value in observed]
    return shown


def _value_shown(value: Any) -> Any:
    """Return a value; of a rule over several columns it is an object of theirs, by column."""
    if isinstance(value, dict) and "content_block_type" not in value:
        return {name: _text_of(each) for name, each in value.items()}
    return _text_of(value)


def _text_of(value: Any) -> Any:
    return json.dumps(value, default=str) if isinstance(value, dict | list | tuple) else value


def write_docs(context: Any, docs: Path, keep: int) -> Path:
    """Write the site of an evaluation; return its index.

    Args:
        context: Great Expectations' context, with the results.
        docs: Local folder of the check's sites.
        keep: Sites kept there; older ones are deleted.
    """
    Location(docs).make_private()
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
