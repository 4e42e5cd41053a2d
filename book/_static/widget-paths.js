// Tell require.js where the widgets' scripts and fonts lie, so that no page asks another host for
// them. This file is loaded between require.js and the widgets' own script, from the same folder.
(function () {
  const here = document.currentScript.src.replace(/[^/]*$/, "");
  window.requirejs.config({ baseUrl: here });
})();
