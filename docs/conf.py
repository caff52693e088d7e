"""Builds the documentation: `make docs`, then open docs/_build/html/index.html.

Notebooks are shown with their committed outputs and never executed here.
"""

import dataclasses
import pkgutil
import re
import shutil
import sys
from pathlib import Path

DOCS = Path(__file__).parent
ROOT = DOCS.parent
sys.path.insert(0, str(ROOT))

import splitjax  # noqa: E402

project = "splitjax"
author = "the splitjax authors"
copyright = "2026, the splitjax authors. Apache-2.0"
version = release = splitjax.__version__

extensions = [
  "myst_nb",
  "sphinx.ext.autodoc",
  "sphinx.ext.napoleon",
  "sphinx.ext.viewcode",
  "sphinx_copybutton",
]
exclude_patterns = ["_build", "results/*/evaluate.md"]
suppress_warnings = [
  "myst.header",  # reports are made by splitjax and begin below a page's title
]

html_theme = "furo"
html_title = f"splitjax {version}"
html_static_path = ["_static"]
html_css_files = ["wide_tables.css"]
html_show_sourcelink = False

myst_enable_extensions = ["colon_fence", "deflist", "fieldlist", "html_image"]
myst_heading_anchors = 3
nb_execution_mode = "off"
nb_merge_streams = True

autodoc_member_order = "bysource"
autodoc_typehints = "none"  # docstrings name shapes and units
autodoc_preserve_defaults = True
add_module_names = False
napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_use_ivar = True
napoleon_use_rtype = False
default_role = "code"


def _prepare() -> None:
  """Copies notebooks to where Sphinx reads, writes a page per package."""
  for folder in (DOCS / "notebooks", DOCS / "api" / "generated"):
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
  for script in (ROOT / "notebooks").glob("*.py"):  # not a reader's own
    shutil.copy(script.with_suffix(".ipynb"), DOCS / "notebooks")
  for package in ["", *splitjax_packages()]:
    name = f"splitjax.{package}".rstrip(".")
    page = DOCS / "api" / "generated" / f"{name}.rst"
    page.write_text(_api_page(name), encoding="utf-8")


def splitjax_packages() -> list[str]:
  """The packages directly below splitjax."""
  modules = pkgutil.iter_modules(splitjax.__path__)
  return [module.name for module in modules if module.ispkg]


def _api_page(name: str) -> str:
  """The API of a package: a section per module, of subpackages too."""
  flat = name == "splitjax"
  folder = ROOT / Path(*name.split("."))
  walk = pkgutil.iter_modules if flat else pkgutil.walk_packages
  modules = [
    module.name
    for module in walk([str(folder)], f"{name}.")
    if not (flat and module.ispkg) and not module.name.endswith("__main__")
  ]
  sections = [f"{name}\n{'=' * len(name)}\n\n.. automodule:: {name}\n"]
  for module in modules:
    sections.append(
      f"{module}\n{'-' * len(module)}\n\n.. automodule:: {module}\n"
      "   :members:\n   :ignore-module-all:\n   :show-inheritance:\n"
    )
  return "\n".join(sections)


_SPECIAL = re.compile(
  r"(`[^`]*`)"  # code stays
  r"|([|*]|(?<=\w)_(?=\W|$)"  # substitutions, emphasis, links
  r"|(?:(?<=: )|(?<=^))(?=\w\.$))"  # "N." alone would begin a list
)


def _escape(line: str) -> str:
  """Quotes what reStructuredText would take for markup, except in `code`."""
  return _SPECIAL.sub(lambda match: match[1] or "\\" + match[2], line)


def _module_layout(lines: list[str]) -> list[str]:
  """Sets indented lines of a module's docstring as they are, sources as a list.

  Modules indent commands, tables and formulas; there are no argument lists.
  """
  out: list[str] = []
  inside = ""
  for line in lines:
    indented = line.startswith("  ")
    if line.strip() and not indented:
      inside = "sources" if line.startswith("References:") else ""
      out += [_escape(line), ""] if inside else [_escape(line)]
    elif indented and inside == "sources":
      entry = line[2] != " "
      out.append(("* " if entry else "  ") + _escape(line.strip()))
    elif indented and not inside:
      out += ["", "::", "", line]
      inside = "literal"
    elif indented or not line.strip():
      out.append(line)
  return out


def _docstring(app, what, name, obj, options, lines) -> None:
  """Docstrings are plain text with `code`: no other markup is meant."""
  del app, name, obj, options
  if what == "module":
    lines[:] = _module_layout(lines)
  else:
    lines[:] = map(_escape, lines)
  if what in ("attribute", "data") and lines:
    # napoleon takes "text: more" for a type.
    lines[0] = lines[0].replace(": ", " – ", 1)


def _signature(app, what, name, obj, options, signature, returns):
  """Leaves out the signatures of records: their fields are listed below."""
  del app, name, options
  record = dataclasses.is_dataclass(obj) or hasattr(obj, "_fields")
  record = record and what == "class"
  return ("", None) if record else (signature, returns)


def _skip(app, what, name, obj, skip, options) -> bool | None:
  """Leaves out the accessors that a NamedTuple makes for its fields."""
  del app, what, name, options
  text = getattr(obj, "__doc__", None) or ""
  return True if text.startswith("Alias for field number") else skip


def setup(app) -> None:
  """Connects what prepares docstrings."""
  _prepare()
  app.connect("autodoc-process-docstring", _docstring, priority=400)
  app.connect("autodoc-process-signature", _signature)
  app.connect("autodoc-skip-member", _skip)
