"""A kernel family: its file is refused where it is wrong, and its toggles do what they say."""

from __future__ import annotations

import itertools
import pickle
import shutil
from pathlib import Path

import pytest
from devices import LIMITS
from hypothesis import given, settings
from hypothesis import strategies as st

from labtools.measure.check import check_rung
from labtools.optimize.family import InvalidPoint, load_family
from labtools.problem import LabError, Rows
from labtools.record.expressions import ExpressionError, MissingName, evaluate_expression, names_in

FOLDER = Path(__file__).resolve().parents[1] / "families"
ROWS = load_family(FOLDER / "row_scale.py")
WIDE, SHUFFLES, EARLY, LARGER = (
    *("memory.wide_accesses", "latency.shuffle_sum"),
    *("latency.early_weights", "compute.larger_blocks"),
)

# ------------------------------------------------------------------------------- expressions


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("ramp(a, 0, 10)", 0.5),
        ("ramp(a, 10, 0)", 0.5),
        ("ramp(50, 0, 10) + clip(-3, 0, 1)", 1.0),
        ("a > 4 and not b", True),
        ("min(a, 2, 3) * -1", -2),
        ("7 // 2 % 2", 1),
        ("b and unknown > 1", 0),
        ("1 < a < 6", True),
    ],
)
def test_an_expression_is_computed(text, value):
    assert evaluate_expression(text, {"a": 5, "b": 0}) == value


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("9**9**9", "Pow"),
        ("1 << 5", "LShift"),
        ("a.real", "Attribute"),
        ("'x' * 10", "no number"),
        ("[a]", "List"),
        ("lambda: a", "Lambda"),
        ("open(a, a)", "functions are"),
        ("ramp(a, 1)", "3 arguments"),
        ("ramp(a, b=1, c=2)", "functions are"),
        ("min(a)", "two or more"),
        ("(1", "never closed"),
        ("", "invalid syntax"),
        ("1; 2", "invalid syntax"),
        ("-" * 100 + "1", "nested"),
        ("1 + " * 200 + "1", "characters"),
        ("1e400", "larger"),
        ("1e300 * 1e300", "finite"),
        ("1 / 0", "zero"),
        ("ramp(a, 1, 1)", "zero"),
        ("2j", "no number"),
    ],
)
def test_an_expression_is_refused(text, says):
    with pytest.raises(ExpressionError) as refused:
        evaluate_expression(text, {"a": 5})
    assert says in refused.value.why


@pytest.mark.parametrize("names", [{}, {"a": None}, {"a": float("nan")}])
def test_a_missing_value_is_missing_and_not_zero(names):
    with pytest.raises(MissingName) as missing:
        evaluate_expression("a < 1", names)
    assert missing.value.name == "a"


@given(st.text(max_size=60))
@settings(max_examples=300)
def test_any_text_is_a_number_or_refused(text):
    try:
        value = evaluate_expression(text, dict.fromkeys(names_in(text), 1.0))
    except ExpressionError:
        return
    assert isinstance(value, (int, float))


# ------------------------------------------------------------------------------------ points


def test_the_family_is_right_on_the_cpu_with_every_method():
    for name in (SHUFFLES, EARLY):
        knobs = ROWS.apply(ROWS.start, [WIDE, name]).knobs
        report = check_rung(ROWS.rung, Rows(3, 264), knobs=knobs)
        assert all(case.ok for case in report.cases), report.summary
        assert report.verdict == "undecided" and "__CUDA_ARCH__" in report.summary  # a prefetch
    assert check_rung(ROWS.rung, Rows(2, 37), knobs=ROWS.start.knobs).verdict == "undecided"


def test_a_point_is_canonical_and_says_what_differs_from_the_start():
    assert ROWS.start.key == "start"
    point = ROWS.point({"threads": 256, "wide": 1})
    assert point.key == "wide=1 threads=256"
    assert ROWS.read_key(point.key) == point
    assert ROWS.read_key("start") == ROWS.start
    assert hash(point) == hash(ROWS.point({"wide": 1, "threads": 256}))
    assert pickle.loads(pickle.dumps(point)) == point
    with pytest.raises(TypeError):
        point.knobs["wide"] = 0


@pytest.mark.parametrize("key", ["wide", "wide=1 wide=1", "wide=x", "narrow=1", "wide=7"])
def test_what_is_no_key_or_no_point_is_refused(key):
    with pytest.raises(LabError):
        ROWS.read_key(key)
    assert ROWS.read_key("") == ROWS.start
    with pytest.raises(InvalidPoint) as refused:
        ROWS.point({"early": 2, "threads": 512})
    assert refused.value.why.startswith("left out")


def test_methods_go_on_and_off():
    point = ROWS.apply(ROWS.start, [WIDE, SHUFFLES], {"threads": 256})
    assert ROWS.methods_on(point) == (WIDE, SHUFFLES, LARGER)
    assert ROWS.remove(point, WIDE).key == "shuffle=1 threads=256"
    assert ROWS.form_of(ROWS.apply(ROWS.start, [EARLY], forms={EARLY: 1}), EARLY) == 1
    with pytest.raises(LabError, match="not on"):
        ROWS.remove(ROWS.start, WIDE)
    with pytest.raises(LabError, match="no form 2"):
        ROWS.apply(ROWS.start, [EARLY], forms={EARLY: 2})
    with pytest.raises(LabError, match="not applied"):
        ROWS.apply(ROWS.start, [WIDE], forms={EARLY: 1})
    with pytest.raises(LabError, match="no method"):
        ROWS.has(point, "memory.magic")


def test_what_a_method_needs_comes_along_and_is_kept_where_it_holds():
    wide_blocks = ROWS.point({"threads": 512})
    assert ROWS.apply(wide_blocks, [EARLY]).knobs["threads"] == 64
    assert ROWS.apply(ROWS.point({"threads": 256}), [EARLY]).knobs["threads"] == 256
    with pytest.raises(InvalidPoint):
        ROWS.apply(ROWS.start, [EARLY], {"threads": 512})


def test_what_goes_along_is_set_but_need_not_stay(tmp_path):
    edit = ("on = [{ shuffle = 1 }]", "on = [{ shuffle = 1 }]\nalong = { threads = 256 }")
    family = load_family(stranger(tmp_path, edit))
    assert family.apply(family.start, [SHUFFLES]).knobs["threads"] == 256
    other = family.apply(family.start, [SHUFFLES], {"threads": 512})
    assert other.knobs["threads"] == 512
    assert family.has(other, SHUFFLES)


def test_the_grid_is_the_valid_products_each_once():
    grid = ROWS.grid()
    assert len(grid) == len(set(grid)) == 2 * 2 * (3 + 2)
    assert not any(point.holds({"early": 2, "threads": 512}) for point in grid)
    closed = ROWS.closure()
    assert closed[: len(grid)] == grid
    for point, method in itertools.product(grid, (WIDE, SHUFFLES, EARLY, LARGER)):
        if ROWS.has(point, method):
            assert ROWS.remove(point, method) in closed


def test_a_round_may_lead_without_what_the_file_says(tmp_path):
    assert ROWS.leading == ROWS.grid()
    said = ("workloads =", f'leads_without = ["{SHUFFLES}"]\nworkloads =')
    family = load_family(stranger(tmp_path, ("shuffle = [0, 1]", "shuffle = [1]"), said))
    less = family.leading[len(family.grid()) :]
    assert set(less) == {family.remove(one, SHUFFLES) for one in family.grid()}
    assert set(less) <= set(family.closure())


# -------------------------------------------------------------------------------------- the file


def stranger(folder: Path, *edits: tuple[str, str]) -> Path:
    """Somebody's three files in a folder of their own, the last one edited."""
    for ending in ("cu", "py", "toml"):
        shutil.copy(FOLDER / f"row_scale.{ending}", folder / f"mine.{ending}")
    source = folder / "mine.toml"
    text = source.read_text()
    for old, new in edits:
        assert old in text, old
        text = text.replace(old, new, 1)
    source.write_text(text)
    return source


def test_three_files_anywhere_are_a_family(tmp_path):
    family = load_family(stranger(tmp_path))
    assert family.workloads[0] == Rows(8192, 4096)
    assert [one.id for one in family.methods] == [one.id for one in ROWS.methods]
    assert family.rung.launches(family.workloads[0], LIMITS, family.start.knobs)
    with pytest.raises(LabError, match="no kernel family"):
        load_family("r03_one_warp")


WRONG = {
    "unknown field": ("priority = 1", "prio = 1", "prio"),
    "missing field": ('title = "16 bytes a lane"', "", "title"),
    "wrong type": ("priority = 1", 'priority = "1"', "priority"),
    "axis": ('axis = "memory"', 'axis = "bandwidth"', "axis"),
    "axis of the id": ('axis = "memory"', 'axis = "latency"', "is of axis"),
    "unknown knob": ("off = { wide = 0 }", "off = { width = 0 }", "width"),
    "unknown value": ("on = [{ wide = 1 }]", "on = [{ wide = 3 }]", "wide=3"),
    "form is off": ("on = [{ wide = 1 }]", "on = [{ wide = 0 }]", "same as off"),
    "other knobs": ("on = [{ wide = 1 }]", "on = [{ shuffle = 1 }]", "every form"),
    "no signature": ('signature = [">=5 SHFL\\\\.BFLY"]', "", "signature, or else a proof"),
    "signature and proof": (
        'signature = ["CCTL"]',
        'signature = ["CCTL"]\nproof = "x"',
        "not both",
    ),
    "signature of nothing": ('signature = ["CCTL"]', 'signature = ["!CCTL"]', "empty kernel"),
    "comparison with nothing": (
        'signature = ["CCTL"]',
        'signature = ["more "]',
        "looks for nothing",
    ),
    "signature of all": ('signature = ["CCTL"]', 'signature = ["C*"]', "in everything"),
    "no expression of text": ('signature = ["CCTL"]', 'signature = ["("]', "regular expression"),
    "trigger": ("ramp(memory_gap, 0.1, 0.6)", "ramp(memory_gap, 0.1", "never closed"),
    "misspelt counter": ("ramp(memory_gap, 0.1, 0.6)", "dram_throughput > 1", "dram_throughput"),
    "misspelt field": ("columns % 8 != 0", "colums % 8 != 0", "colums"),
    "proof over a gap": ("_pct > achieved", "_pct > compute_gap + achieved", "compute_gap"),
    "constraint": ("not (early > 0", "not (earlier > 0", "earlier"),
    "hyper": ("values = [64, 256, 512]", "values = [64, 100]", "threads=100"),
    "grid": ("early = [0, 2], threads", "early = [0, 3], threads", "early=3"),
    "leads without": ("workloads =", 'leads_without = ["a.b"]\nworkloads =', "a.b"),
    "workload": ("rows:8192,4096", "8,32,8,4096,128", "computes rows"),
    "twice": ('id = "latency.early_weights"', 'id = "latency.shuffle_sum"', "twice"),
    "needs what cannot be": (
        "needs = { threads = [64, 256] }",
        "needs = { threads = 512 }",
        "early",
    ),
    "no TOML": ("[[hyper]]", "[[hyper", "hyper"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_file_is_refused_and_says_where(case, tmp_path):
    old, new, says = WRONG[case]
    with pytest.raises(LabError) as refused:
        load_family(stranger(tmp_path, (old, new)))
    message = str(refused.value)
    assert "mine.toml" in message
    if case != "no TOML":
        assert says in message
    if case in ("missing field", "misspelt counter", "unknown knob", "wrong type"):
        assert "memory.wide_accesses" in message


def test_rules_that_undo_each_other_are_found(tmp_path):
    rules = (
        '[[canonical]]\nwhen = "wide == 0"\nset = { wide = 1 }\nwhy = "a"\n'
        '[[canonical]]\nwhen = "wide == 1"\nset = { wide = 0 }\nwhy = "b"\n[[hyper]]'
    )
    with pytest.raises(LabError, match="never settle"):
        load_family(stranger(tmp_path, ("[[hyper]]", rules)))


def test_a_canonical_rule_makes_equal_kernels_one_point(tmp_path):
    rule = '[[canonical]]\nwhen = "wide == 0"\nset = { early = 0 }\nwhy = "a"\n[[hyper]]'
    needs = ("needs = { threads = [64, 256] }", "needs = { threads = [64, 256], wide = 1 }")
    family = load_family(stranger(tmp_path, ("[[hyper]]", rule), needs))
    assert family.point({"early": 2}) == family.start
    both = family.apply(family.start, [EARLY])
    assert family.methods_on(both) == (WIDE, EARLY)
    assert family.remove(both, WIDE) == family.start
    assert family.dependents(both, WIDE) == (EARLY,)
