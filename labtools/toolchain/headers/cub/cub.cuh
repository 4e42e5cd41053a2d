// cub's own has what only a host compiler takes; what a kernel most often takes from it is here.
#pragma once
#include <cub/block/block_reduce.cuh>
#include <cub/warp/warp_reduce.cuh>
