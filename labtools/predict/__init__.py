"""What should happen: data sheets with sources, occupancy, floors, and forecasts of kernels."""

from .banks import Tile, check_tile, half_tile
from .calibration import machine_of
from .derivation import Design, Figure, Step
from .forecast import CLASSES, Forecast, LaunchForecast, Link, Slice, forecast, what_if
from .inversion import derive
from .occupancy import AchievedOccupancy, Occupancy, Waves, achieved_occupancy, occupancy, waves
from .roofline import Floors, RooflineForecast, floors, roofline_forecast
from .sheets import Gpu, gpu_of_device, list_gpus, load_gpu, merge_device

__all__ = [
    "CLASSES",
    "AchievedOccupancy",
    "Design",
    "Figure",
    "Floors",
    "Forecast",
    "Gpu",
    "LaunchForecast",
    "Link",
    "Occupancy",
    "RooflineForecast",
    "Slice",
    "Step",
    "Tile",
    "Waves",
    "achieved_occupancy",
    "check_tile",
    "derive",
    "floors",
    "forecast",
    "gpu_of_device",
    "half_tile",
    "list_gpus",
    "load_gpu",
    "machine_of",
    "merge_device",
    "occupancy",
    "roofline_forecast",
    "waves",
    "what_if",
]
