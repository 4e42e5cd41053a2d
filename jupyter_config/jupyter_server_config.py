"""What ``make lab`` adds to the server: a notebook beside the text of each page, which has the
outputs, and what fills it when it has none (``tools/fill_server.py``).
"""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1]))

c = get_config()  # noqa: F821  (given by traitlets)
c.ServerApp.jpserver_extensions = {"tools.fill_server": True}
c.JupytextConfiguration.formats = "ipynb,md:myst"
