"""What was expensive is kept by content, by several processes at once, and can be lost."""

from __future__ import annotations

import dataclasses
import errno
import multiprocessing
import os
import pickle
import shutil
import subprocess
import sys
import tempfile
import warnings
import zlib
from pathlib import Path

import numpy as np
import pytest
from devices import LIMITS, needs_tools

from labtools.measure.worker import ChildResult
from labtools.problem import LabError, Workload, load_rung
from labtools.toolchain import (
    CompileError,
    cache,
    compile_ahead,
    compile_cubin,
    compile_rung,
)
from labtools.toolchain import compiler as compiler_module
from labtools.toolchain.cache import (
    SIZE_VARIABLE,
    USUAL_MIB,
    CacheWarning,
    cache_dir,
    cache_state,
    code_digest,
    content_key,
    in_folder,
    is_kept,
    kept,
    kept_values,
    limit_bytes,
    prune_folder,
    prune_kept,
    share_bytes,
)
from labtools.toolchain.cubin import Cubin

KERNEL = '#include "mine.cuh"\nextern "C" __global__ void one(int* x) { *x = VALUE; }\n'


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch) -> Path:
    """A cache of this test's own, and nothing said yet."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    cache._warn_once.cache_clear()
    cache._files_in.cache_clear()
    return tmp_path / "cache" / "labtools" / "kept"


def never():
    raise AssertionError("it was made again")


def twice() -> list[int]:
    """What two calls get that would each make another value."""
    return [kept("thing", ("a",), lambda n=n: n) for n in (1, 2)]


def run_code(code: str, **variables: str) -> list[str]:
    """The lines that Python prints in a process of its own."""
    environment = {**os.environ, **variables}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    return done.stdout.splitlines()


def files(folder: Path) -> list[Path]:
    return sorted(folder.rglob("output.pkl"))


# ------------------------------------------------------------------------------------- content


def test_equal_content_has_one_key_and_other_content_another():
    workload = Workload.parse("8,32,8,4096,128")
    different = [
        (1,), ("1",), (b"1",), (1.0,), (True,), (None,), ((1,),), ("a", "b"), ("ab", ""),
        ("", "ab"),
        (np.int32(1),), (np.int64(1),), (np.arange(3),), (np.arange(3.0),), (np.arange(3)[::-1],),
        (workload,), (workload.replace(seed=1),), ({"a": 1},), ({"a": 2},), ([{"a": 1}, 2],),
    ]  # fmt: skip
    assert len({content_key(*parts) for parts in different}) == len(different)
    assert content_key({"a": 1, "b": 2}) == content_key({"b": 2, "a": 1})
    assert content_key(dataclasses.replace(workload)) == content_key(workload)
    with pytest.raises(TypeError, match="has no content"):
        content_key(lambda: 1)


def test_a_key_is_the_same_in_every_process():
    value = "frozenset('abcdefgh'), {'x': 1.5, 'a': (1, None)}"
    code = f"from labtools.toolchain.cache import content_key as k; print(k({value}))"
    assert run_code(code, PYTHONHASHSEED="1") == [content_key(*eval(value))]


def test_the_digest_of_code_changes_with_the_code_and_its_tables(tmp_path, monkeypatch):
    monkeypatch.setattr(cache, "_ROOM", tmp_path)
    (tmp_path / "predict" / "tables").mkdir(parents=True)
    code, table = tmp_path / "predict" / "a.py", tmp_path / "predict" / "tables" / "b.toml"
    seen = set()
    for text in ("x = 1\n", "x = 2\n"):
        for number in ("1", "2"):
            code.write_text(text)
            table.write_text(number)
            seen.add(code_digest("predict"))
    assert len(seen) == 4
    code.rename(code.with_name("c.py"))
    assert code_digest("predict") not in seen


# -------------------------------------------------------------------------------------- keeping


def test_a_value_is_made_once(folder):
    value = {"text": "ä" * 9, "image": b"\0\1" * 9999, "numbers": (1.5, float("inf"))}
    assert not is_kept("thing", ("a", 1))
    assert kept("thing", ("a", 1), lambda: value) == value
    assert kept("thing", ("a", 1), never) == value
    assert is_kept("thing", ("a", 1))
    assert kept("other", ("a", 1), lambda: None) is None  # None is a value too
    assert kept("other", ("a", 1), never) is None
    assert kept("thing", ("a", 2), lambda: 2) == 2
    assert len(files(folder)) == 3
    assert (folder.stat().st_mode & 0o777) == 0o700


class Runs:
    """A pickle of it, wherever it stands, calls something."""

    def __init__(self, call, *arguments):
        self.call = call, arguments

    def __reduce__(self):
        return self.call


def test_a_file_of_the_cache_runs_nothing(folder, tmp_path):
    trace = tmp_path / "ran"
    runs = Runs(Path.touch, trace)
    falsified = [
        pickle.dumps(zlib.compress(pickle.dumps(one))) for one in (runs, [runs], {1: runs})
    ]
    nested = Runs(exec, f"open({str(trace)!r}, 'w')")
    loads = Runs(load_rung, str(tmp_path / "any.py"))
    (tmp_path / "any.py").write_text(nested.call[1][0])
    falsified += [pickle.dumps(zlib.compress(pickle.dumps(one))) for one in (nested, loads)]
    falsified += [pickle.dumps(runs), pickle.dumps(np.array([runs], dtype=object))]
    kept("thing", (1,), lambda: 1)
    for data in falsified:
        files(folder)[0].write_bytes(data)
        assert kept("thing", (1,), lambda: 2) == 2
        assert not trace.exists()
        assert kept("thing", (1,), never) == 2


def test_all_of_a_kind_is_read_and_what_is_damaged_left_out(folder):
    assert kept_values("told") == []
    for value in ("a", "b", "c"):
        kept("told", [value], lambda value=value: {"is": value})
    kept("other", ["d"], lambda: "d")
    next(folder.rglob("told/*/output.pkl")).write_bytes(b"damaged")
    assert len(kept_values("told")) == 2 and all(one["is"] in "abc" for one in kept_values("told"))


def test_what_fails_is_not_kept(folder):
    for _ in range(2):
        with pytest.raises(AssertionError, match="made again"):
            kept("thing", ("a",), never)
    assert files(folder) == []
    assert kept("thing", ("a",), lambda: 3) == 3


@pytest.mark.parametrize("damage", ["cut", "empty", "flipped", "text", "a folder"])
def test_a_damaged_file_counts_as_not_there(folder, damage):
    value = list(range(1000))
    kept("thing", ("a",), lambda: value)
    (file,) = files(folder)
    data = file.read_bytes()
    if damage == "a folder":
        file.unlink()
        file.mkdir()
    elif damage == "flipped":
        middle = len(data) // 2
        file.write_bytes(data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :])
    else:
        file.write_bytes({"cut": data[: len(data) // 2], "empty": b"", "text": b"hello"}[damage])
    assert kept("thing", ("a",), lambda: value) == value
    assert kept("thing", ("a",), never) == value


def test_a_folder_that_is_removed_meanwhile_is_made_again(folder):
    assert kept("thing", ("a",), lambda: 1) == 1
    shutil.rmtree(folder.parent.parent)
    assert kept("thing", ("a",), lambda: 2) == 2
    assert kept("thing", ("a",), never) == 2
    assert cache_state().items == 1


def _make_many(start: int) -> list[int]:
    return [kept("thing", (n % 7,), lambda n=n: [n % 7] * 20000)[0] for n in range(start, 60)]


def test_processes_at_once_get_whole_values(folder):
    with multiprocessing.get_context("spawn").Pool(3) as pool:
        found = pool.map(_make_many, [0, 1, 2])
    assert found == [[n % 7 for n in range(start, 60)] for start in (0, 1, 2)]
    assert len(files(folder)) == 7
    assert list(folder.rglob("*.pkl?*")) == []  # no litter


def test_the_folder_stays_below_its_limit(folder, monkeypatch):
    monkeypatch.setenv(SIZE_VARIABLE, "0.5")
    for number in range(60):
        kept("thing", (number,), lambda n=number: np.random.default_rng(n).bytes(40_000))
        assert cache_state().bytes <= 0.6 * 2**20
    assert is_kept("thing", (59,)) and not is_kept("thing", (0,))
    assert cache_state().limit_bytes == 2**19


@pytest.mark.parametrize(("given", "most"), [("0", 0), ("", 2**30), ("12", 12 * 2**20)])
def test_the_limit_comes_from_the_environment(monkeypatch, folder, given, most):
    monkeypatch.setenv(SIZE_VARIABLE, given)
    assert twice() == ([1, 2] if most == 0 else [1, 1])
    assert folder.exists() == (most > 0)
    state = cache_state()
    assert state.limit_bytes == most and bool(state.why) == (most == 0)


@pytest.mark.parametrize("given", ["much", "nan", "-1", "-inf", "1_0", "\u0661", "1e3"])
def test_a_limit_that_is_no_number_is_said_once(monkeypatch, given):
    monkeypatch.setenv(SIZE_VARIABLE, given)
    with pytest.warns(CacheWarning, match="no number of MiB") as said:
        assert twice() == [1, 1]
    assert len(said) == 1
    assert limit_bytes() == USUAL_MIB * 2**20
    assert not cache_state().why


def test_a_folder_is_pruned_by_size(tmp_path):
    for number in range(6):
        place = tmp_path / f"{number}"
        place.mkdir()
        (place / "a").write_bytes(b"x" * 100)
        os.utime(place, (number, number))

    def left() -> str:
        return "".join(sorted(path.name for path in tmp_path.iterdir()))

    prune_folder(tmp_path, 10_000)
    assert left() == "012345"
    prune_folder(tmp_path, 350)
    assert left() == "345"
    prune_folder(tmp_path, 10)  # the one that was used last stays
    assert left() == "5"
    prune_folder(tmp_path / "nowhere", 1)


# ----------------------------------------------------------------------------------- trouble


def stored(image=b"code"):
    from labtools.measure.gpu.job import store_cubin

    return store_cubin(Cubin(image, "sm_90", "", "13.0", {}, "one.cu"))


@pytest.mark.slow
def test_a_cache_that_is_switched_off_leaves_nothing(tmp_path):
    """Files that children need stand in a temporary folder, which goes with the process."""
    code = (
        "import sys\n"
        f"sys.path.insert(0, {str(Path(__file__).parent)!r})\n"
        "from test_toolchain_cache import built_path, stored\n"
        "for path in (stored(), built_path()):\n"
        "    assert path.is_file()\n"
        "    print(path)\n"
    )
    passing = tmp_path / "passing"
    passing.mkdir()
    places = {"XDG_CACHE_HOME": str(tmp_path / "home"), "TMPDIR": str(passing)}
    paths = [Path(line) for line in run_code(code, **places, **{SIZE_VARIABLE: "0"})]
    assert len(paths) == 2 and all(path.is_relative_to(passing) for path in paths)
    assert list(passing.iterdir()) == [] and not (tmp_path / "home").exists()


def built_path(**defines):
    """A kernel built for the CPU."""
    from labtools.measure.cpu.build import build_kernel

    source = "__global__ void one(int* out) { *out = 1; }\n"
    return build_kernel(source, "one.cu", ["one"], defines, []).path


def test_a_compiler_that_lacks_room_is_no_mistake_in_the_kernel(folder, monkeypatch):
    from labtools.measure.cpu import build

    real, refused = build.run_child, []

    def run(command, **options):
        if Path(options.get("env", {}).get("TMPDIR", "/")).is_relative_to(folder.parent):
            refused.append(command)
            command = [sys.executable, "-c", "raise SystemExit('one.cu:1: error: full')"]
        return real(command, **options)

    asked = []

    def check_room(place):  # there is room before the first compilation, and none behind it
        asked.append(place)
        if len(asked) > 1 and place.is_relative_to(folder.parent):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    # Ready-made headers take seconds, and are worth it for many kernels only.
    monkeypatch.setattr(build, "_build_prelude", lambda *_: ())
    build.find_cpu_compiler(), build.native_digest()
    monkeypatch.setattr(build, "run_child", run)
    monkeypatch.setattr(build, "check_room", check_room)
    with pytest.warns(CacheWarning, match="nothing is kept there"):
        path = built_path()
    assert len(refused) == 1
    assert path.is_file() and not path.is_relative_to(folder.parent)
    built_path(OTHER="1")
    assert len(refused) == 1, "a folder that is full is not asked again"


@pytest.mark.parametrize("file", ["runtime.o", "sums.json"])
def test_what_every_kernel_is_built_with_heals(tmp_path, monkeypatch, file):
    from labtools.measure.cpu import build

    made = []

    def compile_it(command, folder):
        made.append(Path(command[-1]).write_bytes(bytes(range(256))))
        return ChildResult((), 0, "", "", 0.0, False, 1.0)

    monkeypatch.setattr(build, "_compile", compile_it)

    def whole():
        return build._compile_once(tmp_path, "runtime.o", [], ["g++"])[0]

    place = whole() / file
    data = place.read_bytes()
    damages = [
        (lambda: place.write_bytes(data[:-1])),
        (lambda: place.write_bytes(bytes(len(data)))),
        (lambda: place.write_bytes(b"")),
        (lambda: place.unlink()),
        (lambda: shutil.rmtree(place.parent)),
        (lambda: place.chmod(0o755) if file == "runtime.o" else place.unlink()),
        (lambda: (place.parent / "more").write_text("what nobody put there")),
    ]
    for number, damage in enumerate(damages, start=1):
        damage()
        assert whole() == whole() and len(made) == number + 1
        assert place.read_bytes() == data


def test_files_that_vanish_while_they_are_made_are_made_again(folder):
    seen = []

    def work(place):
        seen.append(place)
        if len(seen) == 1:
            shutil.rmtree(place)
            raise FileNotFoundError
        (place / "file").write_text("here")
        return place / "file"

    assert in_folder("cpu", work, "a file").read_text() == "here"
    assert seen == [cache_dir("cpu")] * 2


def test_other_trouble_is_not_taken_for_a_full_disk(folder):
    def work(place):
        raise OSError(errno.EIO, "the disk is broken")

    with pytest.raises(OSError, match="broken"):
        in_folder("cpu", work, "a file")


def test_the_folders_together_keep_to_the_limit(folder, monkeypatch):
    monkeypatch.setenv(SIZE_VARIABLE, "1")
    assert sum(share_bytes(name) for name in cache.SHARES) <= limit_bytes()
    place = cache_dir("cubins")
    for number in range(5):
        path = place / str(number)
        path.write_bytes(bytes(50_000))
        os.utime(path, (1000 + number, 1000 + number))
    prune_kept("cubins", 50_000, {place / "0"})
    assert sorted(one.name for one in place.iterdir()) == ["0", "3", "4"]
    monkeypatch.setenv(SIZE_VARIABLE, "0")
    prune_kept("cubins", 50_000)
    assert len(list(place.iterdir())) == 3  # not its folder any more


def test_without_a_writable_folder_everything_is_made_anew(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "file"))
    assert cache_dir("kept") is None
    with pytest.warns(CacheWarning, match="no folder") as said:
        assert twice() == [1, 2]
    assert len(said) == 1
    assert cache_state().folder is None and cache_state().why


@pytest.mark.filterwarnings("ignore::labtools.toolchain.cache.CacheWarning")
def test_a_link_where_everybody_can_write_is_not_followed(tmp_path, monkeypatch):
    from labtools.record.whole import lock_folder

    (tmp_path / "file").write_text("")
    (tmp_path / "precious").mkdir(mode=0o755)
    (tmp_path / f"labtools-locks-{os.getuid()}").symlink_to(tmp_path / "precious")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "mine"))
    assert lock_folder() == tmp_path / "mine" / "labtools" / "locks"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with pytest.raises(LabError):
        lock_folder()
    assert list((tmp_path / "precious").iterdir()) == []
    # A cache that its owner has put elsewhere is as good as any.
    (tmp_path / "home" / "labtools").mkdir(parents=True)
    (tmp_path / "home" / "labtools" / "kept").symlink_to(tmp_path / "precious")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    assert cache_dir("kept") == tmp_path / "home" / "labtools" / "kept"


def test_the_folder_of_another_user_is_not_used(folder, tmp_path, monkeypatch):
    """What lies in it would be loaded as Python objects."""
    folder.mkdir(parents=True)
    mine = os.getuid()
    monkeypatch.setattr(os, "getuid", lambda: mine + 1)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "nowhere"))
    (tmp_path / "nowhere").write_text("")
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        assert twice() == [1, 2]
    texts = [str(one.message) for one in said]
    assert len([text for text in texts if "belongs to another user" in text]) == 1
    assert files(folder) == []


def test_a_folder_that_others_may_write_is_closed_first(folder):
    folder.mkdir(parents=True)
    folder.chmod(0o777)
    kept("thing", ("a",), lambda: 1)
    assert (folder.stat().st_mode & 0o777) == 0o700


# ----------------------------------------------------------------------------- what is kept


@pytest.fixture
def compiles(monkeypatch):
    """How often NVRTC ran, though nothing is remembered in memory."""
    ran = []
    real = compiler_module._compile_apart  # NVRTC itself runs in a copy of this process

    def counted(*given):
        ran.append(given[3])
        return real(*given)

    monkeypatch.setattr(compiler_module, "_compile_apart", counted)
    return ran


@pytest.fixture
def build(tmp_path):
    (tmp_path / "mine.cuh").write_text("#include <deep.cuh>\n")
    (tmp_path / "deep.cuh").write_text("#define VALUE 1\n")

    def build(source=KERNEL, arch="sm_90", defines=None):
        compiler_module._cubins.clear()
        found = compile_cubin(source, arch, defines, "one.cu", [tmp_path], "cuda-core")
        return found.entries["one"].code_hash

    return build


@needs_tools
def test_code_is_compiled_once_for_source_headers_definitions_and_architecture(
    build, compiles, tmp_path
):
    first = build()
    assert build() == first and len(compiles) == 1
    assert build(arch="sm_80") != first and len(compiles) == 2
    assert build(defines={"OTHER": "1"}) == first and len(compiles) == 3
    build(source=KERNEL + "// more\n")
    assert len(compiles) == 4
    (tmp_path / "deep.cuh").write_text("#define VALUE 2\n")  # in angle brackets, of a header
    assert build() != first and len(compiles) == 5
    (tmp_path / "deep.cuh").write_text("#define VALUE 1\n")
    assert build() == first and len(compiles) == 5


@needs_tools
def test_what_is_compiled_ahead_is_compiled_once_and_found_later(compiles, folder):
    rung = load_rung("r03")
    broken = rung.with_source(rung.source_text.replace("n < length", "n < lenght"))
    shapes = [Workload(batch, 8, 2, 65, dim) for batch in (1, 2) for dim in (64, 128)]
    asked = [(one, shape, None) for one in (rung, broken) for shape in shapes]
    compiler_module._cubins.clear()
    compile_ahead(asked, LIMITS)
    assert sorted(defines["HEAD_DIM"] for defines in compiles) == ["128", "128", "64", "64"]
    for shape in shapes:
        assert compile_rung(rung, shape, LIMITS).entries
    assert len(compiles) == 4
    with pytest.raises(CompileError, match="lenght"):
        compile_rung(broken, shapes[0], LIMITS)


@needs_tools
def test_another_build_of_the_compiler_compiles_anew(build, compiles, monkeypatch):
    build()
    monkeypatch.setattr(compiler_module, "_nvrtc_builds", lambda found: ("another",))
    build()
    assert len(compiles) == 2
    monkeypatch.setattr(compiler_module, "_nvrtc_builds", lambda found: ())  # not known: not kept
    build()
    build()
    assert len(compiles) == 4


@needs_tools
def test_typed_instructions_are_read_when_asked_for_and_damage_is_mended(folder, monkeypatch):
    from labtools.toolchain import listings, sass

    rung, workload = load_rung("r02"), Workload.parse("2,8,2,301,128")
    listings._codes.clear()
    made = listings.machine_code(rung, workload, LIMITS)
    listings._codes.clear()
    again = listings.machine_code(rung, workload, LIMITS)
    assert "_all" not in vars(again.entries) and again.content == made.content
    for file in files(folder / "disassembly"):
        file.write_bytes(file.read_bytes()[:-3])
    sass._listings.clear()
    assert content_key(again.entries) == content_key(made.entries)
    listings._codes.clear()
    sass._listings.clear()

    def runs(*_):
        raise AssertionError("nvdisasm ran")

    monkeypatch.setattr(sass, "_run_nvdisasm", runs)
    found = listings.machine_code(rung, workload, LIMITS)
    assert content_key(found.entries) == content_key(made.entries)
    commented = rung.with_source(rung.source_text + "\n// another line\n")
    with pytest.raises(AssertionError, match="nvdisasm ran"):  # another cubin
        listings.machine_code(commented, workload, LIMITS)


@needs_tools
def test_code_for_measuring_children_is_whole_and_of_this_user(build, tmp_path):
    """A file that a crash or a full disk cut off, or that something changed, is written anew."""
    from labtools.measure.gpu.job import store_cubin

    compiler_module._cubins.clear()
    (tmp_path / "mine.cuh").write_text("#define VALUE 7\n")
    made = compile_cubin(KERNEL, "sm_90", {}, "one.cu", [tmp_path], "cuda-core")
    path = store_cubin(made)
    assert path.parent == cache_dir("cubins") and path.read_bytes() == made.image
    assert path.parent.stat().st_mode & 0o777 == 0o700
    for damaged in (made.image[:-1], b"\0" * len(made.image)):
        path.write_bytes(damaged)
        assert store_cubin(made) == path and path.read_bytes() == made.image
    assert [one.name for one in path.parent.iterdir()] == [path.name]  # no litter
