"""What should happen: data sheets with sources, occupancy, floors, and forecasts of kernels."""

from .calibration import machine_of
from .forecast import CLASSES, Forecast, LaunchForecast, Link, Slice, forecast, what_if
from .occupancy import AchievedOccupancy, Occupancy, Waves, achieved_occupancy, occupancy, waves
from .roofline import Floors, RooflineForecast, floors, roofline_forecast
from .sheets import Gpu, gpu_of_device, list_gpus, load_gpu, merge_device

__all__ = [
    "CLASSES",
    "AchievedOccupancy",
    "Floors",
    "Forecast",
    "Gpu",
    "LaunchForecast",
    "Link",
    "Occupancy",
    "RooflineForecast",
    "Slice",
    "Waves",
    "achieved_occupancy",
    "floors",
    "forecast",
    "gpu_of_device",
    "list_gpus",
    "load_gpu",
    "machine_of",
    "merge_device",
    "occupancy",
    "roofline_forecast",
    "waves",
    "what_if",
]
