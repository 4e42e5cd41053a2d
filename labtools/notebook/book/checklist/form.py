"""The checklist as a page shows it: filled by the model, with room for what only a reader knows."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from labtools.notebook.book.checklist.answers import READER_FIELDS, Checklist, Item, checklist
from labtools.predict import list_gpus, load_gpu
from labtools.problem import HEADLINE, Problem, Rung, list_rungs, load_rung, parse_problem
from labtools.problem.problem import CACHE_STATES
from labtools.record.prediction import JournalError

from ...reader import StatusLine, open_journal, page_name, reader_present
from ...tables import BOX, Shown, Word, badge, make_note, show_table

if TYPE_CHECKING:
    import ipywidgets

    from labtools.record.journal import Journal

_STYLE = (
    "<style>.lt-check-page .widget-html {height: auto; max-width: 100%; overflow: hidden;}"
    ".lt-check-page .widget-html-content {line-height: 1.45; white-space: normal;"
    " flex: 1 1 auto; min-width: 0;}"
    ".lt-check-page .widget-text, .lt-check-page .widget-dropdown, .lt-check-page .widget-textarea"
    " {flex-wrap: wrap; height: auto; width: 100%; max-width: 38em; margin-right: 0;}"
    ".lt-check-page .widget-label {width: 100%; max-width: none; text-align: left;"
    " justify-content: flex-start; height: auto; line-height: 1.5; white-space: normal;"
    " overflow: visible;}"
    ".lt-check-page :is(select, input) {min-height: 2.2em;}"
    ".lt-check-page .widget-hbox {flex-wrap: wrap; overflow: visible;}"
    ".lt-check-page .jupyter-button {height: auto; min-height: 2.4em; width: auto;}</style>"
)


def show_checklist(filled: Checklist, *, with_fields: bool = True) -> Shown:
    """A filled checklist: every question, its answer, and the numbers behind it; with open lines
    for what only the reader can answer."""
    knobs = ", ".join(f"{name} {value}" for name, value in filled.knobs.items())
    title = f"{filled.rung_id} ({knobs or 'no knobs'}), {filled.workload}, {filled.gpu.title}"
    shown = Shown(f"<p><strong>{html.escape(title)}</strong></p>", title)
    for number, item in enumerate(filled.items, start=1):
        shown += _show_item(number, item)
    asked = READER_FIELDS if with_fields else ()
    for number, (_, question) in enumerate(asked, start=len(filled.items) + 1):
        shown += _open_line(number, question)
    return shown


def _show_item(number: int, item: Item) -> Shown:
    head = f"{number}. {item.question}"
    parts = []
    if item.facts:
        facts = [(fact.name, fact.value, fact.note, Word(fact.word)) for fact in item.facts]
        parts.append(show_table(("", "value", "note"), facts, word=item.word))
    if item.rows:
        parts.append(show_table(item.columns, item.rows, word=item.word))
    numbers = "".join(part.html for part in parts)
    if numbers:
        opened = " open" if item.id in ("chain", "what_if", "neighbours") else ""
        look = "cursor:pointer;text-decoration:underline"
        summary = f'<summary style="{look}">the numbers</summary>'
        numbers = f"<details{opened}>{summary}{numbers}</details>"
    markup = (
        f'<section class="lt-check-item" data-item="{item.id}" style="margin:0.9em 0">'
        f"<strong>{html.escape(head)}</strong><br>{html.escape(item.says)} {badge(item.word)}"
        f"{numbers}</section>"
    )
    text = "\n".join([head, f"   {item.says} [{item.word}]", *(part.text for part in parts)])
    return Shown(markup, text)


def _open_line(number: int, question: str) -> Shown:
    head = f"{number}. {question}"
    said = "Only you can answer this. In Jupyter there is a field for it, kept in your journal."
    markup = (
        f'<section class="lt-check-item lt-check-open" style="margin:0.9em 0">'
        f'<strong>{html.escape(head)}</strong><div style="{BOX};border-style:dashed">{said}</div>'
        "</section>"
    )
    return Shown(markup, f"{head}\n   {said}")


class ChecklistPage(StatusLine):
    """Controls, the list that is ``filled``, and the reader's fields; ``view`` is None when nobody
    is here.

    Make it with `checklist_page`.
    """

    def __init__(
        self,
        rung: Rung | str = "r03",
        workload: Problem = HEADLINE,
        gpu: str = "h200",
        knobs: Mapping[str, int] | None = None,
        *,
        page: str | None = None,
        journal: Journal | None = None,
        reader: bool | None = None,
    ) -> None:
        self.page = page or page_name()
        self.rung = rung if isinstance(rung, Rung) else load_rung(rung)
        self.workload, self.gpu = workload, gpu
        self.knobs = self.rung.resolve_knobs(knobs)
        self._journal: Journal | None = None
        self._trouble = ""
        self.view: ipywidgets.VBox | None = None
        self.filled = checklist(self.rung, workload, gpu, self.knobs)
        if reader_present() if reader is None else reader:
            self._journal, self._trouble = open_journal(
                journal, lambda one: one.notes(self.filled.key)
            )
            self._build()
            self._show_filled()

    def fill(
        self, rung: Rung | str, workload: Problem, gpu: str, knobs: Mapping[str, int] | None = None
    ) -> Checklist:
        """Fill the list for another kernel; the fast part is shown before the experiments."""
        chosen = rung if isinstance(rung, Rung) else load_rung(rung)
        values = chosen.resolve_knobs(knobs)
        self.rung, self.workload, self.gpu, self.knobs = chosen, workload, gpu, dict(values)
        if self.view is not None:
            self.filled = checklist(chosen, workload, gpu, values, experiments=False)
            self._show_filled()
            self._say("The first part is there. The experiments are being computed.")
        self.filled = checklist(chosen, workload, gpu, values)
        if self.view is not None:
            self._show_filled()
        self._say("Filled.")
        return self.filled

    def write(self, fields: Mapping[str, str]) -> None:
        """Keep the reader's answers, by names of `READER_FIELDS`, for the kernel that is shown."""
        if self._journal is None:
            why = self._trouble or "this notebook runs without a reader"
            raise JournalError("Nothing was kept.", why, "the list above is filled all the same")
        self._journal.write_notes(self.filled.key, self.page, fields)

    def written(self) -> dict[str, str]:
        """The reader's answers for the kernel that is shown; empty texts where there are none."""
        kept = self._journal.notes(self.filled.key) if self._journal else None
        found = kept.fields if kept else {}
        return {name: found.get(name, "") for name, _ in READER_FIELDS}

    def show(self) -> None:
        """Display the page, or the filled list alone when nobody is here."""
        from IPython.display import display

        note = make_note(
            "This list is filled for one kernel. To choose another kernel, workload, GPU or "
            "knob, and to keep your own answers, open this page in Jupyter."
        )
        display(note + show_checklist(self.filled) if self.view is None else self.view)

    # -- widgets -----------------------------------------------------------------------------

    def _build(self) -> None:
        import ipywidgets as widgets

        def choice(description: str, options: Sequence[Any], value: Any) -> widgets.Dropdown:
            return widgets.Dropdown(description=description, options=options, value=value)

        names = [shipped.id for shipped in list_rungs()]
        told = "kernel: a rung, or the path of your own .py"
        at_end: dict[str, Any] = {"continuous_update": False}
        self._kernel = widgets.Combobox(
            value=self.rung.id, options=names, ensure_option=False, description=told, **at_end
        )
        told = "workload: batch, query heads, KV heads, length, head dim"
        self._workload = widgets.Text(self.workload.short(), description=told, **at_end)
        self._cache = choice("cache at the start", CACHE_STATES, self.workload.cache_state)
        titles = [(load_gpu(name).title, name) for name in list_gpus()]
        self._gpu = choice("GPU", titles, self.gpu)
        self._knob_box = widgets.VBox()
        self._button = widgets.Button(description="Fill in")
        self._status, self._list = widgets.HTML(), widgets.HTML()
        self._fields = {
            name: widgets.Textarea(description=question, rows=2, **at_end)
            for name, question in READER_FIELDS
        }
        self._keep = widgets.Button(description="Keep in my journal")
        self._kept = widgets.HTML()
        self._kernel.observe(lambda _: self._guard(self._offer_knobs), "value")
        self._button.on_click(lambda _: self._guard(self._click_fill))
        self._keep.on_click(lambda _: self._guard(self._click_keep))
        controls = [self._kernel, self._workload, self._cache, self._gpu, self._knob_box]
        shown = [widgets.HBox([self._button]), self._status, self._list]
        own = [*self._fields.values(), widgets.HBox([self._keep]), self._kept]
        self.view = widgets.VBox([widgets.HTML(_STYLE), *controls, *shown, *own])
        self.view.add_class("lt-check-page")
        self._make_knobs(self.rung, self.knobs)

    def _make_knobs(self, rung: Rung, values: Mapping[str, int]) -> None:
        import ipywidgets as widgets

        self._knobs = {
            name: widgets.Dropdown(options=knob.choices, value=values[name], description=told)
            for knob in rung.knobs
            for name, told in [(knob.name, f"{knob.name}: {knob.doc}")]
        }
        self._knob_box.children = tuple(self._knobs.values())

    def _offer_knobs(self) -> None:
        rung = load_rung(self._kernel.value.strip())
        self._make_knobs(rung, rung.resolve_knobs())
        self._say("")

    def _click_fill(self) -> None:
        self._say("The kernel is compiled and read.")
        rung: Rung | str = self._kernel.value.strip()
        if rung == self.rung.id and self.rung.edited:
            rung = self.rung  # an edited kernel of this page is not the shipped one
        workload = parse_problem(self._workload.value.strip())
        if workload.short() == self.workload.short():
            workload = self.workload  # it may have lengths that the short form does not tell
        workload = workload.replace(cache_state=self._cache.value)
        self.fill(rung, workload, self._gpu.value, {n: w.value for n, w in self._knobs.items()})

    def _click_keep(self) -> None:
        self.write({name: field.value for name, field in self._fields.items()})
        self._kept.value = '<div role="status">Kept.</div>'

    def _show_filled(self) -> None:
        self._list.value = show_checklist(self.filled, with_fields=False).html
        for name, text in self.written().items():
            self._fields[name].value = text
        self._keep.disabled = self._journal is None
        self._kept.value = html.escape(self._trouble)


def checklist_page(
    rung: Rung | str = "r03",
    workload: Problem = HEADLINE,
    gpu: str = "h200",
    knobs: Mapping[str, int] | None = None,
    page: str | None = None,
) -> ChecklistPage:
    """Show the checklist in this cell, filled for one kernel (a rung, its id, or the path of your
    own kernel's ``.py``) to begin with. Answers are kept in your own journal."""
    made = ChecklistPage(rung, workload, gpu, knobs, page=page)
    made.show()
    return made
