// What a reader meets on the open page, as tools/reading.py says. A table is any grid of rows and
// columns: an HTML table, what calls itself one, columns of plain text, or boxes that stand so.
() => {
  const main = document.querySelector("article") ?? document.body;
  const shown = (one) => one.checkVisibility({ contentVisibilityAuto: true, visibilityProperty: true })
    && one.getClientRects().length > 0;
  const all = (selector) => [...main.querySelectorAll(selector)];
  const words = (text) => text.match(/[\p{L}\p{N}][\p{L}\p{N}'’.,%-]*/gu)?.length ?? 0;
  const outermost = (one, selector) => !one.parentElement.closest(selector);

  const TABLE = "table:not(.highlighttable), [role=table], [role=grid], [role=treegrid]";
  const CODE = ".cell_input pre, div[class*=highlight-] pre, pre.lt-code";
  const inColumns = (text) => {
    let rows = 0, grids = 0;
    for (const line of text.split("\n")) {
      rows = line.trim().split(/ {2,}|\t/).length >= 3 ? rows + 1 : 0;
      grids += rows === 3;
    }
    return grids;
  };
  const isBoxes = (one) => {
    if (getComputedStyle(one).display !== "grid" || one.children.length < 6) return false;
    if (one.querySelector("input, button, svg, canvas, table, p, select")) return false;
    const boxes = [...one.children].map((child) => child.getBoundingClientRect());
    const places = (side) => new Set(boxes.map((box) => Math.round(box[side]))).size;
    return places("left") >= 2 && places("top") >= 3;
  };
  const plain = all("pre").filter((one) => !one.matches(CODE) || one.closest("[class*=highlight-text], [class*=highlight-none]"));
  const tables = all(TABLE).filter((one) => outermost(one, TABLE) && shown(one)).length
    + plain.filter(shown).reduce((sum, one) => sum + inColumns(one.textContent), 0)
    + all("div, dl, ul").filter((one) => shown(one) && isBoxes(one)).length;

  const code = all(CODE).filter((one) => outermost(one, "pre") && shown(one));
  const lines = (one) => one.textContent.trimEnd().split("\n").length;
  const editors = all(".lt-write").filter((one) => one.querySelector(".cm-editor") && shown(one)); // it draws only some lines
  const isSetUp = (one) => one.closest(".cell_input") && /^\s*(import|from) \w|\bglobals\(\)/.test(one.textContent);

  const NO_PROSE = `script, style, pre, svg, nav, button, select, .headerlink, mjx-container, .math, .prev-next-area, h1 + blockquote, .cell_input, .lt-write, ${TABLE}`;
  let open = 0, folded = 0;
  const texts = document.createTreeWalker(main, NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) {
    const held = texts.currentNode.parentElement;
    if (held.closest(NO_PROSE)) continue;
    if (shown(held)) open += words(texts.currentNode.textContent);
    else if (held.closest("details")) folded += words(texts.currentNode.textContent);
  }
  const FREE_FOLDS = ".lt-reason, .lt-hint, .lt-solution, .dropdown.hint, .dropdown.solution";
  return {
    tables,
    words: open,
    code: code.reduce((sum, one) => sum + lines(one), 0) + editors.reduce((sum, one) => sum + lines({ textContent: one.dataset.start }), 0),
    "set-up": code.filter(isSetUp).length,
    folds: all("details").filter((one) => shown(one) && !one.matches(FREE_FOLDS)).length,
    sections: all("section").length,
    folded,
    pictures: all("svg, img, canvas").filter((one) => shown(one) && one.getBoundingClientRect().width > 120).length,
  };
}
