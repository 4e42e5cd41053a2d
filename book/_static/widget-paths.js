// Tell require.js where anywidget lies, so that no page asks another host for it. This file is
// loaded between require.js and the widgets' own script, from the same folder as both.
(function () {
  const here = document.currentScript.src.replace(/[^/]*$/, "");
  window.requirejs.config({ paths: { anywidget: here + "anywidget" } });
})();
