"""What ``make lab`` adds to JupyterLab: the extension beside this file."""

from pathlib import Path

c = get_config()  # noqa: F821  (given by traitlets)
c.LabApp.extra_labextensions_path = [str(Path(__file__).resolve().parent / "labextensions")]
