"""The chain bench: knobs above, the machine code's loop in time below. A moved knob compiles and
forecasts in a thread of its own; a page without a kernel offers settings worked out before.
"""

from __future__ import annotations

import itertools
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import ipywidgets
import traitlets

from labtools import problem
from labtools.predict import Gpu, list_gpus, load_gpu
from labtools.problem import HEADLINE, LabError, Rung, Workload
from labtools.problem.problem import CACHE_STATES
from labtools.record import RecordStore

from ...bench import View, look, slider
from ...newest import Newest
from ...reader import reader_present
from .state import ChainState, Setting, change_between, legend, state_of

_HEADS = (1, 2, 4, 8, 16, 32, 64)
SIZE_STEPS: dict[str, tuple[str, Sequence[Any]]] = {
    "batch": ("sequences (B)", (1, 2, 4, 8, 16, 32, 64, 128)),
    "num_qo_heads": ("query heads (Hq)", _HEADS),
    "num_kv_heads": ("KV heads (Hkv)", _HEADS),
    "kv_len": ("KV length (S)", tuple(256 << n for n in range(10))),
    "head_dim": ("head size (D)", (64, 128)),
    "cache_state": ("L2 at the start", CACHE_STATES),
}
"""Of a workload's fields the label and the steps of its slider."""
KEPT_STATES = 64
REST_S = 0.08
"""A knob that is still moving is waited for this long."""


class ChainView(View, script="view"):
    """The picture. `content` holds the settings that can be shown, with all their texts."""

    content = traitlets.Dict().tag(sync=True)
    busy = traitlets.Unicode("").tag(sync=True)


def chain_settings(settings: Sequence[Setting], *, recorded: bool = True) -> ChainView:
    """A picture of some settings, worked out now, to choose from; the first is shown and pinned."""
    if not settings:
        raise LabError("There is no setting to show.", "the list is empty", "name one")
    store = RecordStore() if recorded else None
    states = [state_of(setting, store) for setting in settings]
    return ChainView(content=_content(states, 0, False))


def _content(states: Sequence[ChainState], shown: int, live: bool) -> dict[str, Any]:
    """What the picture shows: the first state is pinned, any may be compared with any."""
    changes = {
        f"{a},{b}": change_between(states[a], states[b])
        for a, b in itertools.permutations(range(len(states)), 2)
    }
    both = {"states": list(states), "changes": changes}
    return {"live": live, "legend": legend(), "shown": shown, "pinned": 0, **both}


class ChainBench(ipywidgets.VBox):
    """Knobs and the picture that they steer; needs a kernel.

    ``controls`` has ``rung``, ``gpu`` and `SIZE_STEPS` by name, ``knobs`` the rung's own, which are
    others after another rung was chosen.
    """

    def __init__(
        self, rungs: Sequence[Rung], start: Setting, gpus: Sequence[Gpu], store: RecordStore | None
    ) -> None:
        self._rungs = {rung.id: rung for rung in rungs}
        self._gpus = {gpu.title: gpu for gpu in gpus}
        self._store = store
        self._kept: OrderedDict[tuple[Any, ...], ChainState] = OrderedDict()
        named = [(f"{rung.id}: {rung.title}", rung.id) for rung in rungs]
        kernels = ipywidgets.Dropdown(options=named, value=start.rung.id, **look("kernel"))
        titles = ipywidgets.Dropdown(options=list(self._gpus), value=start.gpu.title, **look("GPU"))
        self.controls: dict[str, Any] = {"rung": kernels, "gpu": titles}
        for name, (label, steps) in SIZE_STEPS.items():
            size = getattr(start.workload, name)
            offered = steps if size in steps else sorted({*steps, size})
            self.controls[name] = slider(label, offered, size)
        self.knobs: dict[str, Any] = {}
        self._knob_box = ipywidgets.VBox()
        self.view = ChainView()
        self.view.on_msg(self._receive)
        self._draw_knobs(start.knobs)
        for control in self.controls.values():
            control.observe(self._moved, "value")
        first = state_of(start, store)
        self._pinned = first
        self._lock = threading.RLock()
        self._work = Newest(self._answer, REST_S)
        self._keep(self._key(), first)
        self._show(first)
        workload = ipywidgets.VBox([*self.controls.values()][1:])
        fold = ipywidgets.Accordion([workload], titles=("Workload and GPU",))
        super().__init__([kernels, self._knob_box, fold, self.view])
        self.add_class("lt-bench")

    @property
    def setting(self) -> Setting:
        """Where the knobs stand."""
        at = {name: control.value for name, control in self.controls.items()}
        workload = Workload.from_dict({name: at[name] for name in SIZE_STEPS})
        knobs = {name: control.value for name, control in self.knobs.items()}
        return Setting(self._rungs[at["rung"]], workload, self._gpus[at["gpu"]], knobs)

    @property
    def state(self) -> ChainState:
        """What is shown."""
        content = self.view.content
        shown: ChainState = content["states"][content["shown"]]
        return shown

    def pin(self) -> None:
        """Compare with what is shown now from here on."""
        shown = self.state
        if not shown.get("message"):
            self._pinned = shown
            self._show(shown)

    def wait(self, seconds: float = 30.0) -> None:
        """Wait until the newest position of the knobs is shown."""
        if not self._work.wait(seconds):
            why = f"more than {seconds:g} s passed"
            raise LabError("The forecast takes long.", why, "try again")

    # ------------------------------------------------------------------------------- answers

    def _moved(self, change: Any) -> None:
        if change["owner"] is self.controls["rung"]:
            # What the two kernels share keeps its value.
            self._draw_knobs({name: control.value for name, control in self.knobs.items()})
        try:
            setting = self.setting
        except LabError as error:
            self._work.drop()
            self._show({"title": "", "message": " ".join(str(error).split("\n"))})
            return
        key = self._key()
        kept = self._kept.get(key)
        if kept is not None:
            self._work.drop()
            self._kept.move_to_end(key)
            self._show(kept)
            return
        self.view.busy = f"working out {setting.title}"
        self._work.ask((key, setting))

    def _answer(self, asked: tuple[Any, ...], still_wanted: Callable[[], bool]) -> None:
        key, setting = asked
        try:
            state = state_of(setting, self._store)
        except Exception as error:  # a thread has nobody above it who would tell the reader
            told = problem.as_lab_error(error)
            said = f"This setting could not be worked out. {told.what} {told.why}"
            state = {"title": setting.title, "message": said}
        self._keep(key, state)
        if still_wanted():
            self._show(state)

    def _show(self, state: ChainState) -> None:
        with self._lock:  # a pin comes from another thread than a finished forecast
            states = [state] if self._pinned is state else [self._pinned, state]
            self.view.content = _content(states, len(states) - 1, True)
            self.view.busy = ""

    def _keep(self, key: tuple[Any, ...], state: ChainState) -> None:
        self._kept[key] = state
        while len(self._kept) > KEPT_STATES:
            self._kept.popitem(last=False)

    def _key(self) -> tuple[Any, ...]:
        every = {**self.controls, **self.knobs}.items()
        return tuple((name, control.value) for name, control in every)

    def _draw_knobs(self, values: Mapping[str, Any]) -> None:
        rung = self._rungs[self.controls["rung"].value]
        self.knobs = {}
        for knob in rung.knobs:
            wanted = values.get(knob.name, knob.default)
            value = wanted if wanted in knob.choices else knob.default
            control = slider(knob.name, knob.choices, value)
            control.tooltip = knob.doc or None
            control.observe(self._moved, "value")
            self.knobs[knob.name] = control
        self._knob_box.children = tuple(self.knobs.values())

    def _receive(self, _view: Any, content: Any, _buffers: Any) -> None:
        if isinstance(content, dict) and content.get("kind") == "pin":
            self.pin()


def chain_bench(
    rung: str | Rung = "r03",
    workload: Workload = HEADLINE,
    gpu: str = "h200",
    knobs: Mapping[str, int] | None = None,
    *,
    presets: Sequence[Setting] = (),
    recorded: bool = True,
) -> ChainBench | ChainView:
    """The bench of the ladder and the studies where a reader is here; else a picture of ``presets``
    that needs no kernel.
    """
    first = rung if isinstance(rung, Rung) else problem.load_rung(rung)
    start = Setting(first, workload, load_gpu(gpu), dict(knobs or {}))
    start.rung.resolve_knobs(start.knobs)
    if not reader_present():
        return chain_settings([start, *presets], recorded=recorded)
    # An edited rung stands where its own text would.
    offered = {one.id: one for one in (*problem.list_rungs(), *problem.list_studies(), first)}
    sheets = [load_gpu(name) for name in list_gpus()]
    store = RecordStore() if recorded else None
    return ChainBench([*offered.values()], start, sheets, store)
