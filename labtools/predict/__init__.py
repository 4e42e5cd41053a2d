"""What should happen: data sheets with sources, occupancy, waves, floors and forecasts."""

from .occupancy import AchievedOccupancy, Occupancy, Waves, achieved_occupancy, occupancy, waves
from .roofline import Floors, Forecast, floors, forecast
from .sheets import Gpu, gpu_of_device, list_gpus, load_gpu, merge_device

__all__ = [
    "AchievedOccupancy",
    "Floors",
    "Forecast",
    "Gpu",
    "Occupancy",
    "Waves",
    "achieved_occupancy",
    "floors",
    "forecast",
    "gpu_of_device",
    "list_gpus",
    "load_gpu",
    "merge_device",
    "occupancy",
    "waves",
]
