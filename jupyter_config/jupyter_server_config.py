"""What ``make lab`` adds to the server: a notebook beside the text of each page, which has the
outputs, and what fills it when it has none (``tools/fill_server.py``).
"""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.append(str(ROOT))

from tools.stills import keep_live  # noqa: E402


def keep_still(model, **_):
    """Before a notebook is saved: what it shows of its widgets when it is opened again."""
    if model["type"] == "notebook":
        keep_live(model["content"])


c = get_config()  # noqa: F821  (given by traitlets)
c.ServerApp.jpserver_extensions = {"tools.fill_server": True}
c.ContentsManager.pre_save_hook = keep_still
c.JupytextConfiguration.formats = "ipynb,md:myst"
