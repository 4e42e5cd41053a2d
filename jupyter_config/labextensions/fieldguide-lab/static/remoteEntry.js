// A JupyterLab extension without a build step: the container that JupyterLab asks for a module is
// written by hand. It does three things on a page that is open:
//
// 1. A cell that begins with %%cuda is shown in the colours of C++. JupyterLab itself gives every
//    cell of a notebook the language of its kernel.
// 2. When a prediction is committed that a run had stopped for, the cells below run.
// 3. When a run stops for an answer that is written into a cell, that place is shown. JupyterLab
//    itself shows the end of the page.
(() => {
  const CUDA = /^\s*%%cuda\b/;
  const CPP = "text/x-c++src";
  const WAITS = "AnswerPending"; // the exception of labtools/notebook/answer.py
  const SHOW_EVERY_MS = 200;
  const MOST_SHOWS = 10; // JupyterLab goes to the end of the page when its run has ended
  const FACTORIES = ["Notebook", "Jupytext Notebook"];
  const notebooks = new Set();
  let shared = {};

  // ---------------------------------------------------------------------------- colours

  function colour(notebook, model) {
    if (model.type !== "code") return;
    const wanted = CUDA.test(model.sharedModel.getSource()) ? CPP : notebook.codeMimetype;
    if (model.mimeType !== wanted && (wanted === CPP || model.mimeType === CPP)) {
      model.mimeType = wanted;
    }
  }

  function watchCells(notebook, known) {
    for (const model of notebook.model?.cells ?? []) {
      if (!known.has(model)) {
        known.add(model);
        model.contentChanged.connect(() => colour(notebook, model));
        // The notebook gives all cells the kernel's language when it has heard from the kernel.
        model.mimeTypeChanged?.connect(() => colour(notebook, model));
        model.outputs?.changed.connect(() => showWhereItWaits(notebook, model));
      }
      colour(notebook, model);
    }
  }

  function watchNotebook(panel) {
    const notebook = panel.content;
    if (notebooks.has(panel)) return;
    notebooks.add(panel);
    panel.disposed.connect(() => notebooks.delete(panel));
    const known = new WeakSet();
    const look = () => watchCells(notebook, known);
    const follow = () => {
      notebook.model?.cells.changed.connect(look);
      look();
    };
    notebook.modelChanged.connect(follow);
    follow();
  }

  // ---------------------------------------------------------------------------- where it waits

  function showWhereItWaits(notebook, model) {
    const last = model.outputs.length ? model.outputs.get(model.outputs.length - 1).toJSON() : {};
    if (last.output_type !== "error" || last.ename !== WAITS) return;
    const hands = new AbortController(); // a reader who moves the page is not pulled back
    const options = { signal: hands.signal, capture: true, passive: true };
    let left = MOST_SHOWS;
    const timer = setInterval(() => {
      left -= 1;
      const place = notebook.widgets.findIndex((cell) => cell.model === model);
      if (left < 0 || place < 1 || hands.signal.aborted) {
        clearInterval(timer);
        hands.abort();
        return;
      }
      notebook.deselectAll();
      notebook.activeCellIndex = place - 1; // the answer is written into the cell above
      notebook.scrollToItem(place, "center");
    }, SHOW_EVERY_MS);
    for (const event of ["wheel", "pointerdown", "keydown", "touchstart"]) {
      window.addEventListener(event, () => hands.abort(), options);
    }
  }

  // ---------------------------------------------------------------------------- the run

  async function runBelow(app, panel, place) {
    const page = document.documentElement.dataset;
    const notebook = panel.content;
    page.ltUnderWay = "yes";
    try {
      const [newest] = Object.values(shared["@jupyterlab/notebook"] ?? {});
      const { NotebookActions } = newest ? (await newest.get())() : {};
      if (NotebookActions?.runCells) {
        // The reader stays where the guess was made: the result shows just below it.
        await NotebookActions.runCells(
          notebook, notebook.widgets.slice(place), panel.sessionContext,
        );
      } else {
        notebook.deselectAll();
        notebook.activeCellIndex = place;
        await app.commands.execute("notebook:run-all-below");
      }
    } finally {
      delete page.ltUnderWay;
    }
  }

  function goOn(app, event) {
    for (const panel of notebooks) {
      const cells = panel.content.widgets;
      const place = cells.findIndex((cell) => cell.node.contains(event.target));
      if (place >= 0) {
        event.preventDefault();
        runBelow(app, panel, place + 1);
        return;
      }
    }
  }

  const plugin = {
    id: "fieldguide-lab:plugin",
    autoStart: true,
    activate: (app) => {
      const extension = {
        createNew: (panel) => {
          watchNotebook(panel);
        },
      };
      for (const name of FACTORIES) app.docRegistry.addWidgetExtension(name, extension);
      document.documentElement.dataset.ltGoesOn = "yes";
      document.addEventListener("lt-go-on", (event) => goOn(app, event));
    },
  };

  window._JUPYTERLAB = window._JUPYTERLAB ?? {};
  window._JUPYTERLAB["fieldguide-lab"] = {
    init: (scope) => {
      shared = scope;
    },
    get: (name) =>
      name === "./extension"
        ? Promise.resolve(() => ({ __esModule: true, default: plugin }))
        : Promise.reject(new Error(`fieldguide-lab has no ${name}`)),
  };
})();
