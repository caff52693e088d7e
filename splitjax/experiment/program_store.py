"""Compiled programs on disk, found without tracing.

jax's own cache is asked with the text of a program, so that a warm start still
traces and lowers everything, which takes most of its time. Here a program is
found by what it is made from: the sources of splitjax, the method and its
options, the network, shapes and devices. Hyper-parameters are arguments, and a
stored program has its conditions on them (`methods.hyper`). Programs of methods
and networks of one's own are not stored: nobody can tell what their code calls.
"""

import contextlib
import functools
import hashlib
import os
import pickle
import platform
import time
from collections.abc import Hashable, Iterator, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

import jax
from jax.experimental import serialize_executable
from jax.experimental.compilation_cache import compilation_cache

from splitjax.engine import prepare
from splitjax.experiment.progress import say
from splitjax.files import one_line, write_bytes
from splitjax.methods import hyper

PACKAGE = Path(__file__).resolve().parents[1]
FOLDER = "programs"
"""Of them in the folder of `--compilation_cache`."""

_BEGUN = time.time()

LIMIT = 2 * 10**9
"""Bytes that are kept; the programs that were not used longest go."""


class Head(NamedTuple):
  """What precedes a program in its file.

  Attributes:
    conditions: on the hyper-parameters.
    digest: of the program's text.
    owner: label of the method that it was compiled for.
    names: of the hyper-parameters that it takes.
  """

  conditions: tuple[hyper.Condition, ...]
  digest: bytes
  owner: str
  names: tuple[str, ...]


class Content(NamedTuple):
  """A serialised program: in a file, or not yet in one.

  A program that was loaded cannot be serialised again on a CPU (jax 0.10.2: it
  lacks its functions), so that its bytes are taken from where they are.

  Attributes:
    path: of the file; None if not yet.
    data: the bytes; None if they are in the file.
  """

  path: Path | None
  data: bytes | None = None

  def read(self) -> bytes:
    """The bytes, which must be those that were written."""
    if self.path is None:
      assert self.data is not None
      return self.data
    with self.path.open("rb") as file:
      pickle.load(file)
      sha256, data = file.read(32), file.read()
    if hashlib.sha256(data).digest() != sha256:
      raise ValueError("its content has changed")
    return data

  def load(self, devices: Sequence[jax.Device]) -> Any | None:
    """The program for these devices; None, and a line, where it is damaged."""
    assert self.path is not None
    try:
      content, given, results = pickle.loads(self.read())
      program = serialize_executable.deserialize_and_load(
        content, given, results, execution_devices=devices
      )
    except (FileNotFoundError, PermissionError):  # another process's doing
      return None
    except Exception as error:  # jax's, pickle's and the file system's
      _forget(self.path, error)
      return None
    with contextlib.suppress(OSError):  # a folder that is read alone
      os.utime(self.path)
    return program


def key_of(facts: tuple[Hashable, ...]) -> str | None:
  """The name of what a program is made from.

  None where programs are not stored: without a folder, in several processes,
  where a function among the facts is not of splitjax, or where sources have
  changed since this process began, which runs the old ones.
  """
  if prepare.compiled_folder() is None or jax.process_count() > 1:
    return None
  if any(path.stat().st_mtime > _BEGUN for path in PACKAGE.rglob("*.py")):
    return None
  texts = list(map(_text, facts))
  if None in texts:
    return None
  text = "\n".join([_environment(), *map(str, texts)])
  return hashlib.sha256(text.encode()).hexdigest()[:32]


def _text(fact: Any) -> str | None:
  """A fact, the same in every process; None for somebody's own function."""
  if isinstance(fact, tuple) and type(fact) is tuple:
    parts = list(map(_text, fact))
    return None if None in parts else f"({', '.join(map(str, parts))})"
  if isinstance(fact, functools.partial):
    return _text((fact.func, *fact.args, *sorted(fact.keywords.items())))
  if isinstance(fact, jax.sharding.Mesh):
    return f"{fact} of {[device.id for device in fact.devices.flat]}"
  if not callable(fact):
    return str(fact)
  code = getattr(fact, "__code__", None)  # that of a wrapper, not what it wraps
  if code is None or PACKAGE not in Path(code.co_filename).parents:
    return None
  return f"{code.co_filename}, line {code.co_firstlineno}"


@functools.cache
def _environment() -> str:
  """What else decides a program: sources, versions, devices and settings."""
  sources = hashlib.sha256()
  for path in sorted(PACKAGE.rglob("*.py")):
    sources.update(path.read_bytes())
  devices = jax.devices()
  settings = {
    name: value
    for name, value in jax.config.values.items()
    if "cache" not in name and "dir" not in name
  }
  variables = [os.environ.get(n, "") for n in ("XLA_FLAGS", "LIBTPU_INIT_ARGS")]
  facts = (
    sources.hexdigest(),
    [metadata.version(name) for name in ("jax", "jaxlib", "flax", "optax")],
    platform.python_version(),
    devices[0].client.platform_version,
    [(d.platform, d.device_kind, d.id) for d in devices],
    _processor() if devices[0].platform == "cpu" else "",
    variables,
    sorted(settings.items()),
  )
  return repr(facts)


def _processor() -> str:
  """The instructions that this machine's processor has."""
  path = Path("/proc/cpuinfo")
  if not path.exists():
    return platform.processor()
  lines = path.read_text(errors="replace").splitlines()
  return next((x for x in lines if x.startswith(("flags", "Features"))), "")


def find(
  key: str | None, values: hyper.Values
) -> tuple[Head, Content] | tuple[None, None]:
  """A stored program that is right for these hyper-parameters."""
  for path in _files(key):
    try:
      with path.open("rb") as file:
        head = pickle.load(file)
    except (FileNotFoundError, PermissionError):  # another process's doing
      continue
    except Exception as error:  # whatever a damaged pickle raises
      _forget(path, error)
      continue
    if hyper.fits(head.conditions, values):
      return head, Content(path)
  return None, None


def compile_for_storage(
  lowered: Any, options: dict[str, Any] | None
) -> tuple[Any, Content | None]:
  """Compiles a traced program with the compiler's options, and serialises it.

  Not by jax's own cache: what comes from there has been loaded, too.
  """
  settings: Any = jax.config
  before = settings.jax_enable_compilation_cache
  jax.config.update("jax_enable_compilation_cache", False)
  compilation_cache.reset_cache()  # it remembers whether it is enabled
  try:
    program = lowered.compile(options)
  finally:
    jax.config.update("jax_enable_compilation_cache", before)
    compilation_cache.reset_cache()
  try:
    parts = serialize_executable.serialize(program)
    return program, Content(None, pickle.dumps(parts))
  except Exception as error:  # not every backend can
    _cannot(one_line(error))
    return program, None


def save(key: str, head: Head, content: Content) -> Content:
  """Writes a program for later processes; the run goes on where that fails.

  Returns where its bytes are then.
  """
  number = hashlib.sha256(repr(head.conditions).encode()).hexdigest()[:8]
  folder = _folder()
  path = folder / f"{key}.{number}"
  try:
    data = content.read()
    sha256 = hashlib.sha256(data).digest()
    folder.mkdir(parents=True, exist_ok=True)
    parts = pickle.dumps(head), sha256, data
    own = folder / f"{path.name}.{os.getpid()}"  # others may write it, too
    write_bytes(own, lambda file: file.writelines(parts))
    own.replace(path)
    _make_room(folder)
  except (OSError, ValueError, EOFError, pickle.UnpicklingError) as error:
    _cannot(one_line(error))
    return content
  return Content(path)


@functools.cache
def _cannot(reason: str) -> None:
  say(f"programs are not stored for the next start: {reason}")


def _folder() -> Path:
  folder = prepare.compiled_folder()
  assert folder is not None
  return folder / FOLDER


def _files(key: str | None) -> Iterator[Path]:
  if key is None or not _folder().exists():
    return iter(())
  return iter(sorted(_folder().glob(f"{key}.????????")))


def _forget(path: Path, error: Exception) -> None:
  say(f"{path} cannot be used and is deleted: {one_line(error)}")
  with contextlib.suppress(OSError):
    path.unlink(missing_ok=True)


def _make_room(folder: Path) -> None:
  """Deletes the programs that were not used longest, beyond LIMIT bytes."""
  found = []
  for path in folder.iterdir():
    try:
      found.append((path.stat(), path))
    except OSError:  # another process has deleted it
      continue
  found.sort(key=lambda each: each[0].st_mtime)
  size = sum(stat.st_size for stat, _ in found)
  for stat, path in found:
    if size <= LIMIT:
      break
    path.unlink(missing_ok=True)
    size -= stat.st_size
