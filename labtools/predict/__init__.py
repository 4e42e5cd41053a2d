"""What should happen: data sheets with sources, occupancy, floors, and forecasts of kernels."""

from .banks import Tile, check_tile, half_tile
from .forecasting import CLASSES, forecast, forecast_each, what_if
from .machine import machine_of
from .residency import AchievedOccupancy, Occupancy, Waves, achieved_occupancy, occupancy, waves
from .result import MODEL_VERSION, ChainLink, Forecast, LaunchForecast, Slice, model_name
from .roofline import Floors, floors, sheet_floor_us
from .sheets import (
    DEFAULT_GPU,
    Gpu,
    gpu_of_device,
    gpu_or_default,
    limits_of,
    list_gpus,
    load_gpu,
    merge_device,
)
