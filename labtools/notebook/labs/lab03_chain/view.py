"""The chain bench: knobs above, the machine code's loop in time below.

With a kernel, a moved knob compiles and forecasts again, in a thread of its own so that cells can
run meanwhile; only the newest position is worked out. In a page without a kernel the bench offers
settings that Python worked out when the page was made.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import ipywidgets
import traitlets

from labtools.predict import Gpu, list_gpus, load_gpu
from labtools.problem import (
    HEADLINE,
    LabError,
    Rung,
    Workload,
    as_lab_error,
    list_rungs,
    list_studies,
    load_rung,
)
from labtools.problem.problem import CACHE_STATES
from labtools.record import RecordStore

from ...bench import View, look
from ...newest import Newest
from ...reader import reader_present
from .state import ChainState, Setting, change_between, legend, state_of

BATCH = (1, 2, 4, 8, 16, 32, 64, 128)
HEADS = (1, 2, 4, 8, 16, 32, 64)
KV_LEN = (256, 512, 1024, 2048, 4096, 8192, 16384, 32768, 65536, 131072)
HEAD_DIM = (64, 128)
KEPT_STATES = 64
REST_S = 0.08
"""A knob that is still moving is waited for this long."""


class ChainView(View, script="view"):
    """The picture. `content` holds the settings that can be shown, with all their texts."""

    content = traitlets.Dict().tag(sync=True)
    busy = traitlets.Unicode("").tag(sync=True)


def chain_settings(settings: Sequence[Setting], *, recorded: bool = True) -> ChainView:
    """A picture of some settings, worked out now, with a list to choose from and a pin.

    Args:
        settings: what the list offers; the first is shown and pinned.
    """
    if not settings:
        raise LabError("There is no setting to show.", "the list is empty", "name one")
    store = RecordStore() if recorded else None
    states = [state_of(setting, store) for setting in settings]
    changes = {
        f"{a},{b}": change_between(states[a], states[b])
        for a in range(len(states))
        for b in range(len(states))
        if a != b
    }
    return ChainView(
        content={
            "live": False,
            "legend": legend(),
            "states": states,
            "shown": 0,
            "pinned": 0,
            "changes": changes,
        }
    )


class ChainBench(ipywidgets.VBox):
    """Knobs and the picture that they steer; needs a kernel.

    Attributes:
        view: the picture.
        controls: by name: ``rung``, ``gpu``, ``batch``, ``num_qo_heads``, ``num_kv_heads``,
            ``kv_len``, ``head_dim``, ``cache_state``.
        knobs: the rung's own knobs, by name; others after another rung was chosen.
    """

    def __init__(
        self,
        rungs: Sequence[Rung],
        start: Setting,
        gpus: Sequence[Gpu],
        *,
        store: RecordStore | None,
    ) -> None:
        self._rungs = {rung.id: rung for rung in rungs}
        self._gpus = {gpu.title: gpu for gpu in gpus}
        self._store = store
        self._kept: OrderedDict[tuple[Any, ...], ChainState] = OrderedDict()
        self._quiet = False
        load = start.workload
        self.controls: dict[str, Any] = {
            "rung": ipywidgets.Dropdown(
                options=[(f"{rung.id}: {rung.title}", rung.id) for rung in rungs],
                value=start.rung.id,
                **look("kernel"),
            ),
            "gpu": ipywidgets.Dropdown(
                options=list(self._gpus), value=start.gpu.title, **look("GPU")
            ),
            "batch": _slider("sequences (B)", BATCH, load.batch),
            "num_qo_heads": _slider("query heads (Hq)", HEADS, load.num_qo_heads),
            "num_kv_heads": _slider("KV heads (Hkv)", HEADS, load.num_kv_heads),
            "kv_len": _slider("KV length (S)", KV_LEN, load.kv_len),
            "head_dim": _slider("head size (D)", HEAD_DIM, load.head_dim),
            "cache_state": _slider("L2 at the start", CACHE_STATES, load.cache_state),
        }
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
        workload = ipywidgets.VBox(
            [self.controls[name] for name in list(self.controls) if name not in ("rung",)]
        )
        fold = ipywidgets.Accordion([workload], titles=("Workload and GPU",))
        super().__init__([self.controls["rung"], self._knob_box, fold, self.view])
        self.add_class("lt-bench")

    @property
    def setting(self) -> Setting:
        """Where the knobs stand."""
        at = {name: control.value for name, control in self.controls.items()}
        names = ("batch", "num_qo_heads", "num_kv_heads", "kv_len", "head_dim", "cache_state")
        return Setting(
            self._rungs[at["rung"]],
            Workload.from_dict({name: at[name] for name in names}),
            self._gpus[at["gpu"]],
            {name: control.value for name, control in self.knobs.items()},
        )

    @property
    def state(self) -> ChainState:
        """What is shown."""
        content = self.view.content
        shown: ChainState = content["states"][content["shown"]]
        return shown

    def move(self, **values: Any) -> ChainState:
        """Set knobs and controls by name, wait for the answer and return it.

        Args:
            values: ``rung="r02", unroll=8, batch=1``, ...
        """
        self._quiet = True
        try:
            if "rung" in values:
                self.controls["rung"].value = load_rung(values.pop("rung")).id
                self._draw_knobs(values)
            for name, value in values.items():
                control = self.controls.get(name) or self.knobs.get(name)
                if control is None:
                    raise LabError(
                        f"There is no knob {name!r}.",
                        f"there are {', '.join((*self.controls, *self.knobs))}",
                        "name one of them",
                    )
                if value not in _values(control):
                    raise LabError(
                        f"{name} cannot be {value!r} here.",
                        f"it may be {', '.join(map(str, _values(control)))}",
                        "choose one of these",
                    )
                control.value = value
        finally:
            self._quiet = False
        self._moved()
        self.wait()
        return self.state

    def pin(self) -> None:
        """Compare with what is shown now from here on."""
        shown = self.state
        if not shown.get("message"):
            self._pinned = shown
            self._show(shown)

    def wait(self, seconds: float = 30.0) -> None:
        """Wait until the newest position of the knobs is shown."""
        if not self._work.wait(seconds):
            raise LabError(
                "The forecast takes long.", f"more than {seconds:g} s passed", "try again"
            )

    # ------------------------------------------------------------------------------- answers

    def _moved(self, change: Any = None) -> None:
        if self._quiet:
            return
        if change is not None and change["owner"] is self.controls["rung"]:
            # What the two kernels share keeps its value.
            self._draw_knobs({name: control.value for name, control in self.knobs.items()})
        try:
            setting = self.setting
        except LabError as error:
            self._work.drop()
            self._show({"title": "", "message": " ".join(str(error).split("\n")), "answer_s": 0})
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
            told = as_lab_error(error)
            said = f"This setting could not be worked out. {told.what} {told.why}"
            state = {"title": setting.title, "message": said, "answer_s": 0}
        self._keep(key, state)
        if still_wanted():
            self._show(state)

    def _show(self, state: ChainState) -> None:
        with self._lock:  # a pin comes from another thread than a finished forecast
            pinned = self._pinned
            same = pinned is state
            self.view.content = {
                "live": True,
                "legend": legend(),
                "states": [state] if same else [pinned, state],
                "shown": 0 if same else 1,
                "pinned": 0,
                "changes": {} if same else {"0,1": change_between(pinned, state)},
            }
            self.view.busy = ""

    def _keep(self, key: tuple[Any, ...], state: ChainState) -> None:
        self._kept[key] = state
        while len(self._kept) > KEPT_STATES:
            self._kept.popitem(last=False)

    def _key(self) -> tuple[Any, ...]:
        every = {**self.controls, **self.knobs}
        return tuple((name, control.value) for name, control in every.items())

    def _draw_knobs(self, values: Mapping[str, Any]) -> None:
        rung = self._rungs[self.controls["rung"].value]
        self.knobs = {}
        for knob in rung.knobs:
            wanted = values.get(knob.name, knob.default)
            value = wanted if wanted in knob.choices else knob.default
            control = _slider(knob.name, knob.choices, value, tip=knob.doc)
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
    rungs: Sequence[str | Rung] | None = None,
    presets: Sequence[Setting] = (),
    recorded: bool = True,
) -> ChainBench | ChainView:
    """The bench where a reader is here; else a picture of ``presets`` that needs no kernel.

    Args:
        rungs: kernels on the list; by default the ladder and the studies.
    """
    start = Setting(_rung(rung), workload, load_gpu(gpu), dict(knobs or {}))
    start.rung.resolve_knobs(start.knobs)
    if not reader_present():
        return chain_settings([start, *presets], recorded=recorded)
    offered = [_rung(name) for name in rungs] if rungs else [*list_rungs(), *list_studies()]
    if start.rung.id not in {offer.id for offer in offered}:
        offered.insert(0, start.rung)
    offered = [start.rung if offer.id == start.rung.id else offer for offer in offered]
    sheets = [load_gpu(name) for name in list_gpus()]
    return ChainBench(offered, start, sheets, store=RecordStore() if recorded else None)


def _rung(thing: str | Rung) -> Rung:
    return thing if isinstance(thing, Rung) else load_rung(thing)


def _values(control: Any) -> list[Any]:
    return [option[1] if isinstance(option, tuple) else option for option in control.options]


def _slider(
    name: str, values: Sequence[Any], start: Any, tip: str = ""
) -> ipywidgets.SelectionSlider:
    choices = tuple(values)
    if start not in choices:
        choices = tuple(sorted({*choices, start}))
    return ipywidgets.SelectionSlider(
        options=[(str(value), value) for value in choices],
        value=start,
        description_tooltip=tip or None,
        **look(name),
    )
