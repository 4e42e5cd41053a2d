// What scrolls sideways can be reached by keyboard, also what shows later.
const scrollers = new ResizeObserver((seen) => {
  for (const { target } of seen) {
    if (target.scrollWidth > target.clientWidth) target.tabIndex = 0;
    else target.removeAttribute("tabindex");
  }
});
document.addEventListener("DOMContentLoaded", () => {
  const found = document.querySelectorAll("main figure, main .cell_output > .output");
  for (const one of found) scrollers.observe(one);
});

// A word of the glossary explains itself: under the mouse, on focus and at the first tap; Escape
// closes. What it says comes from glossary.js, which is made with the site.
document.addEventListener("DOMContentLoaded", () => {
  const tip = document.createElement("div");
  tip.id = "term-tip";
  tip.setAttribute("role", "tooltip");
  tip.hidden = true;
  document.body.append(tip);
  let shown = null;

  const hide = () => {
    shown?.removeAttribute("aria-describedby");
    shown = null;
    tip.hidden = true;
  };
  const show = (link) => {
    const said = window.GLOSSARY?.[link.dataset.term];
    if (!said || link === shown) return;
    hide();
    shown = link;
    tip.innerHTML = said;
    tip.hidden = false;
    window.MathJax?.typesetPromise?.([tip]);
    link.setAttribute("aria-describedby", tip.id);
    const { left, top, bottom } = link.getBoundingClientRect();
    const room = document.documentElement.clientWidth - tip.offsetWidth - 8;
    const below = bottom + 4 + tip.offsetHeight <= window.innerHeight;
    tip.style.left = `${Math.max(8, Math.min(left, room))}px`;
    tip.style.top = `${below ? bottom + 4 : top - 4 - tip.offsetHeight}px`;
  };

  for (const link of document.querySelectorAll("a[data-term]")) {
    let touched = false; // by a finger, and not shown before
    link.addEventListener("pointerdown", (event) => {
      touched = event.pointerType === "touch" && link !== shown;
    });
    link.addEventListener("pointerenter", (event) => {
      if (event.pointerType !== "touch") show(link);
    });
    link.addEventListener("pointerleave", (event) => {
      if (event.pointerType !== "touch" && document.activeElement !== link) hide();
    });
    link.addEventListener("focus", () => touched || show(link));
    link.addEventListener("blur", hide);
    link.addEventListener("click", (event) => {
      if (!touched) return;
      event.preventDefault();
      show(link);
      touched = false;
    });
  }
  document.addEventListener("keydown", (event) => event.key === "Escape" && hide());
  document.addEventListener("scroll", hide, { passive: true });
});
