"""What the lab adds to Jupyter's server. It fills a page that shows no outputs when it is opened:
it answers with the page's copy and its outputs, and the browser decides whether to take them. And
what is saved shows no widget that would need the kernel of now.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

from jupyter_server.base.handlers import APIHandler
from jupyter_server.utils import url_path_join
from tornado.web import HTTPError, authenticated

from tools.install import ROOT
from tools.stills import keep_live

_one_at_a_time = asyncio.Lock()


class FilledPage(APIHandler):
    """``GET fieldguide/filled?page=book/index`` executes the page, unless that is kept, at low
    priority; 404 where there is nothing to fill."""

    @authenticated
    async def get(self) -> None:
        page, work = self.get_query_argument("page"), self.settings["server_root_dir"]
        command = [sys.executable, "-m", "tools.filled", "--work", str(Path(work).expanduser())]
        async with _one_at_a_time:
            process = await asyncio.create_subprocess_exec(
                *command, "--", page, cwd=ROOT, stdout=asyncio.subprocess.PIPE
            )
            try:
                filled, _ = await process.communicate()
            finally:
                if process.returncode is None:
                    process.kill()
        if process.returncode != 0:
            raise HTTPError(404, f"{page} was not filled")
        self.finish(filled)


def keep_still(model: dict[str, Any], **_: Any) -> None:
    """Before a notebook is saved: what it will show of its widgets when it is opened again."""
    if model["type"] == "notebook":
        keep_live(model["content"])


def _load_jupyter_server_extension(server: Any) -> None:
    # Jupytext has made the contents manager by now.
    server.contents_manager.register_pre_save_hook(keep_still)
    address = url_path_join(server.web_app.settings["base_url"], "fieldguide/filled")
    server.web_app.add_handlers(".*$", [(address, FilledPage)])


def _jupyter_server_extension_points() -> list[dict[str, str]]:
    return [{"module": "tools.fill_server"}]
