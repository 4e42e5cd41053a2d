// A JupyterLab extension without a build step: the container that JupyterLab asks for a module is
// written by hand. It does four things on a page that is open:
//
// 1. A cell that begins with %%cuda is shown in the colours of C++. JupyterLab itself gives every
//    cell of a notebook the language of its kernel.
// 2. When a prediction is committed that a run had stopped for, the cells below run.
// 3. A result that waits for a guess is not shown in the red of an error.
// 4. A page that shows no outputs yet is filled, unless its reader has begun with it.
(() => {
  const CUDA = /^\s*%%cuda\b/;
  const CPP = "text/x-c++src";
  const WAITS = "PredictionPending"; // the exception of labtools/notebook/gate.py
  const STYLE = `.lt-waits .jp-RenderedText[data-mime-type="application/vnd.jupyter.stderr"] {
    background: transparent;
  }
  .lt-bench.jupyter-widgets-disconnected::before, .lt-bench .jupyter-widgets-disconnected::before {
    display: none; /* a bench lives in the browser alone */
  }
  .jp-RenderedHTMLCommon summary { list-style: inside disclosure-closed; cursor: pointer; }
  .jp-RenderedHTMLCommon [open] > summary { list-style-type: disclosure-open; }
  [data-jp-item-name="run-page"] .jp-ToolbarButtonComponent {
    background: var(--jp-brand-color1);
  }
  [data-jp-item-name="run-page"] .jp-ToolbarButtonComponent-label { color: white; }`;
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
        model.outputs?.changed.connect(() => calmDown(notebook, model));
      }
      colour(notebook, model);
    }
  }

  function watchNotebook(panel) {
    const notebook = panel.content;
    if (notebooks.has(panel)) return false;
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
    return true;
  }

  // ---------------------------------------------------------------------------- what waits

  function calmDown(notebook, model) {
    const last = model.outputs.length ? model.outputs.get(model.outputs.length - 1).toJSON() : {};
    const waits = last.output_type === "error" && last.ename === WAITS;
    notebook.widgets.find((cell) => cell.model === model)?.toggleClass("lt-waits", waits);
  }

  // ---------------------------------------------------------------------------- the outputs

  const PAGE = /^((?:book|labs)\/.+)\.(?:md|ipynb)$/;
  const WIDGET = "application/vnd.jupyter.widget-view+json";
  const STATE = "application/vnd.jupyter.widget-state+json";
  const states = new WeakMap(); // of each page, the widgets that came from its file

  // All that a reader may have changed; opening a page alone makes its model dirty.
  const stands = (panel) => JSON.stringify(panel.content.model.toJSON().cells.map(
    ({ cell_type, source, outputs }) => [cell_type, source, outputs]));

  const codeCells = (panel) => [...panel.content.model.cells].filter((cell) => cell.type === "code");

  async function fill(app, panel, keeping) {
    await panel.context.ready;
    const page = PAGE.exec(panel.context.path)?.[1];
    const cells = codeCells(panel);
    if (!page || !cells.length || cells.some(({ outputs }) => outputs.length)) return;
    const before = stands(panel);
    const { serverSettings } = app.serviceManager;
    const address = new URL("fieldguide/filled", serverSettings.baseUrl);
    address.searchParams.set("page", page);
    const headers = { Authorization: `token ${serverSettings.token}` };
    const answer = await fetch(address, { headers });
    if (!answer.ok) return;
    const { cells: filled, metadata } = await answer.json();
    const code = filled.filter((cell) => cell.cell_type === "code");
    const same = (cell, place) => cell.sharedModel.getSource() === code[place]?.source;
    const busy = panel.sessionContext.session?.kernel?.status === "busy";
    if (panel.isDisposed || busy || stands(panel) !== before || !cells.every(same)) return;
    if (metadata.widgets) {
      panel.content.model.setMetadata("widgets", metadata.widgets);
      states.set(panel, metadata.widgets[STATE].state);
      // The widgets of a notebook are read once, when it is opened; so they are read again.
      const manager = await keeping; // else the save below would lose them
      await manager?.restoreWidgets(panel.content.model, { loadKernel: false, loadNotebook: true });
    }
    for (const [place, cell] of cells.entries()) {
      if (!code[place].outputs.length) continue;
      cell.trusted = true; // made on this machine, of the page as it is shipped
      cell.outputs.fromJSON(code[place].outputs);
    }
    await panel.context.save();
  }

  // A page's manager of widgets comes some time after the page: only renderers made then have it.
  async function widgetManager(panel) {
    while (!panel.isDisposed) {
      const later = new Promise((resolve) => setTimeout(resolve, 200));
      const { rendermime } = panel.content;
      if (rendermime.mimeTypes.includes(WIDGET)) {
        const drawn = rendermime.createRenderer(WIDGET);
        const manager = await Promise.race([drawn._manager?.promise, later]);
        drawn.dispose();
        if (manager) return manager;
      }
      await later;
    }
    return null;
  }

  // The manager saves the widgets that a kernel has, and those from the file would be lost. What the
  // notebook shows no more the server drops.
  async function keepWidgets(panel) {
    await panel.context.ready;
    const { model } = panel.content;
    states.set(panel, model.getMetadata("widgets")?.[STATE]?.state);
    const manager = await widgetManager(panel); // it writes its own before us
    panel.context.saveState.connect((_, state) => {
      const saved = model.getMetadata("widgets")?.[STATE];
      if (state !== "started" || !saved) return;
      const both = { ...states.get(panel), ...saved.state };
      model.setMetadata("widgets", { [STATE]: { ...saved, state: both } });
    });
    return manager;
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
          if (!watchNotebook(panel)) return;
          const keeping = keepWidgets(panel);
          keeping.catch(console.error);
          fill(app, panel, keeping).catch(console.error);
        },
      };
      document.head.append(Object.assign(document.createElement("style"), { textContent: STYLE }));
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
